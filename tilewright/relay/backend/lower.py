"""From a fused function to loops: te computes of its operators, scheduled, with constants separated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import te, topi
from ...ir.errors import BuildError
from ...ir.expr import Var as SizeVar
from ...ir.expr import const_value
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...target import Target
from ...tir.transform.lower_custom_datatypes import lower_custom_datatypes
from ...tune import auto_schedule
from ...tune.auto import unasked
from ...tune.constants import split_constants
from ...tune.workload import Task
from ..expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from ..op.implementation import OpImplementation, best_implementation, has_strategy
from ..op.registry import RelayOp
from ..sizes import free_sizes
from ..transform.infer_type import infer_type
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, Type, tensor_fields
from ..visitor import in_order


class Lowered(NamedTuple):
    """A kernel as scheduled loops.

    It takes the tensors that are not constants, then the results, then scalar sizes (`scalar_sizes`), then the
    constants of `labels`: original, or packed by `before`.
    """

    func: PrimFunc
    before: PrimFunc | None
    labels: tuple[str, ...]
    constants: tuple[str, ...]  # the names of the constants, in the order of the parameters
    plain: PrimFunc | None = None  # the loops before they were scheduled, for the figures of profiles


def inner_order(fn: Function) -> list[Any]:
    """The expressions of a fused function in post-order, without operators."""
    return in_order(fn.body, lambda e: e.children())


def lift_constants(fn: Function) -> tuple[Function, list[Constant]]:
    """A fused function with its constant arrays as further parameters; scalars stay."""
    order = inner_order(fn)
    arrays = [e for e in order if isinstance(e, Constant) and not e.is_scalar]
    if not arrays:
        return fn, []
    new: dict[Any, Any] = {c: Var(f"c{i}", c.checked_type) for i, c in enumerate(arrays)}
    params = [*fn.params, *new.values()]
    for e in order:
        if e not in new:
            new[e] = e.map_children(lambda c: new.get(c, c))
    return infer_type(Function(params, new[fn.body], fn.ret_type, None, fn.attrs)), arrays


def scalar_sizes(fn: Function) -> list[SizeVar]:
    """The sizes in the attributes of a typed fused function that are not dimensions of its parameters or results.

    strided_slice(%x: Tensor[(512, 8), float32], end=[n])      its kernel takes n as a number
    """
    wanted = free_sizes(fn)
    if not wanted:
        return []
    alone: set[Any] = set()
    for kind in (*(p.checked_type for p in fn.params), fn.checked_type.ret_type):
        alone.update(d for t in tensor_fields(kind) for d in t.shape if isinstance(d, SizeVar))
    return [s for s in wanted if s not in alone]


def missing_computes(fn: Function) -> list[str]:
    """The operators in a fused function without a compute."""
    return [
        e.op.name
        for e in inner_order(fn)
        if isinstance(e, Call)
        and isinstance(e.op, RelayOp)
        and e.op.compute is None
        and not has_strategy(e.op)
    ]


def te_of(fn: Function) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """The input and output tensors of a fused function, with tuples flattened."""
    made = program_of(fn, None)
    return made.inputs, made.outputs


class _Program(NamedTuple):
    """A fused function as tensor expressions, and the call whose implementation schedules it, if one does."""

    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    anchor: tuple[Call, OpImplementation] | None


def program_of(fn: Function, target: Target | None) -> _Program:
    """The tensor expressions of a fused function, by the implementations of its operators for a target."""
    target = target or Target.current(allow_none=True) or Target("llvm")
    made: dict[Any, list[Any]] = {}
    own: list[tuple[Call, OpImplementation]] = []
    inputs: list[te.Tensor] = []
    for p in fn.params:
        made[p] = [
            te.placeholder(tensor_shape(t), str(t.dtype), name=f"p{len(inputs) + i}")
            for i, t in enumerate(tensor_fields(p.checked_type))
        ]
        inputs += made[p]
    for e in inner_order(fn):
        if e not in made:
            made[e] = _tensors(e, made, target, own)
    outputs: list[te.Tensor] = []
    for t in made[fn.body]:
        # a result that is a parameter, or another result, is a copy
        outputs.append(topi.identity(t) if t in inputs or t in outputs else t)
    return _Program(inputs, outputs, _anchor(fn, own))


def _anchor(
    fn: Function, own: Sequence[tuple[Call, OpImplementation]]
) -> tuple[Call, OpImplementation] | None:
    """The call with the least regular operator, if its implementation has a schedule of its own."""
    patterns = [e.op.pattern for e in inner_order(fn) if isinstance(e, Call) and isinstance(e.op, RelayOp)]
    found = [pair for pair in own if pair[0].op.pattern == max(patterns)]
    return found[-1] if found and not found[-1][1].automatic else None


def _tensors(
    e: Any, made: dict[Any, list[Any]], target: Target, own: list[tuple[Call, OpImplementation]]
) -> list[Any]:
    if isinstance(e, Call) and isinstance(e.op, RelayOp):
        flat = [t for a in e.args for t in made[a]]
        if has_strategy(e.op):
            chosen = best_implementation(e.op, e.attrs, flat, e.checked_type, target)
            own.append((e, chosen))
            results = chosen.compute(e.attrs, flat, e.checked_type)
        elif e.op.compute is None:
            raise BuildError(f"the operator {e.op.name} has no compute")
        else:
            results = list(e.op.compute(e.attrs, flat, e.checked_type))
        wanted = tensor_fields(e.checked_type)
        if len(results) != len(wanted):
            raise BuildError(
                f"{e.op.name}: its compute returns {len(results)} tensors, and its type has {len(wanted)}"
            )
        for made_one, t in zip(results, wanted, strict=True):
            _refuse_other_type(e.op.name, made_one, t)
        return results
    if isinstance(e, Tuple):
        return [t for f in e.fields for t in made[f]]
    if isinstance(e, TupleGetItem):
        start, count = field_range(e.tuple_value.checked_type, e.index)
        return made[e.tuple_value][start : start + count]
    if isinstance(e, Constant) and e.is_scalar:
        value = e.numpy().item()
        return [te.compute((), lambda: te.const(value, str(e.data.dtype)), name="scalar")]
    if isinstance(e, Var):
        raise BuildError(f"%{e.name_hint} in a fused function is not one of its parameters")
    raise BuildError(f"a fused function holds a {type(e).__name__}, which is not an operator")


def _refuse_other_type(name: str, made: te.Tensor, wanted: TensorType) -> None:
    """Refuse a tensor whose type differs from the one that memory was planned for: it would be written out of
    bounds."""
    sizes = zip(made.shape, wanted.shape, strict=False)
    differ = any(isinstance(d, int) and const_value(n) not in (None, d) for n, d in sizes)
    if str(made.dtype) != str(wanted.dtype) or len(made.shape) != len(wanted.shape) or differ:
        shape = ", ".join(map(str, made.shape))
        raise BuildError(
            f"{name}: its compute returns a tensor ({shape}) of {made.dtype}, and its type is {wanted}; "
            "cast its arguments to one type first"
        )


def field_range(kind: Type, index: int) -> tuple[int, int]:
    """The offset of a field's tensors in the flattened tuple, and their number."""
    if not isinstance(kind, TupleType):
        raise BuildError(f"{kind} is not a tuple")
    counts = [len(tensor_fields(f)) for f in kind.fields]
    return sum(counts[:index]), counts[index]


def tensor_shape(kind: TensorType) -> tuple[Any, ...]:
    """The sizes of a tensor, none of which may be unknown."""
    for d in kind.shape:
        if isinstance(d, AnySize):
            raise BuildError(
                f"a tensor of type {kind} has a size that is not known now; "
                'relay.create_executor("vm", …) runs such programs'
            )
    return kind.shape


def loops_of(
    fn: Function, constants: Sequence[int], target: Target | None = None
) -> tuple[PrimFunc, tuple[str, ...]]:
    """The unscheduled loops of a fused function, and the names of the parameters at the indices `constants`."""
    inputs, outputs, _ = program_of(fn, target)
    func = lower_custom_datatypes(te.create_prim_func([*inputs, *outputs, *scalar_sizes(fn)]))
    return func, _names_of(func, constants)


def _names_of(func: PrimFunc, constants: Sequence[int]) -> tuple[str, ...]:
    return tuple(func.buffer_map[func.params[i]].name for i in constants)


def scheduled_by_user(
    fn: Function, constants: Sequence[int], target: Target, symbol: str
) -> tuple[Lowered, str] | None:
    """A fused function with the schedule of an implementation of a program's own, and its name; None without one."""
    if not any(
        isinstance(e, Call) and isinstance(e.op, RelayOp) and has_strategy(e.op) for e in inner_order(fn)
    ):
        return None
    inputs, outputs, anchor = program_of(fn, target)
    if anchor is None:
        return None
    at, chosen = anchor
    sch = chosen.schedule(at.attrs, outputs, target)
    if not isinstance(sch, te.Schedule):
        raise BuildError(
            f"{at.op.name}: the schedule of {chosen.name} returns {type(sch).__name__} and must return a te.Schedule"
        )
    params: list[Any] = [*inputs, *outputs, *scalar_sizes(fn)]
    func = sch.to_prim_func(params, symbol)
    names = _names_of(func, constants)
    func, labels = _constants_last(func, names)
    return Lowered(func, None, labels, names, te.create_prim_func(params)), chosen.name


def _constants_last(func: PrimFunc, names: Sequence[str]) -> tuple[PrimFunc, tuple[str, ...]]:
    """The function with constants, unpacked, as its last parameters, and their names in that order."""
    given = [v for v in func.params if v in func.buffer_map and func.buffer_map[v].name in names]
    others = [v for v in func.params if v not in given]
    return func.replace(params=(*others, *given)), tuple(func.buffer_map[v].name for v in given)


def device_loops(
    fn: Function, constants: Sequence[int], target: Target | None = None
) -> tuple[PrimFunc | None, PrimFunc, tuple[str, ...], tuple[str, ...]]:
    """The loops of a fused function for a device, in two parts: the packing of its constants, which the host runs when
    a model is compiled, and the rest; then the labels of the packed constants, and their names."""
    func, names = loops_of(fn, constants, target)
    if not names:
        return None, func, (), ()
    before, rest, labels = split_constants(func, frozenset(names))
    if before is not None and _elements(before, set(labels)) > 2 * _elements(before, set(names)):
        # constants that are only broadcast are better read directly
        before = None
        rest, kept = _constants_last(func, names)
        labels = list(kept)
    return before, rest, tuple(labels), names


def _elements(func: PrimFunc, names: set[str]) -> int:
    """The number of elements of some parameters."""
    held = [b for b in func.buffer_map.values() if b.name in names]
    return sum(math.prod(int(const_value(d) or 0) for d in b.shape) for b in held)


def task_of_function(fn: Function, constants: Sequence[int], target: Target, name: str) -> Task:
    """The tuning task of a fused function: the key of its records."""
    func, names = loops_of(fn, constants, target)
    if not target.has("aot_executor"):
        func, names = device_loops(fn, constants, target)[1], ()
    return Task(IRModule({name: func.with_attr("global_symbol", name)}), target, names)


def lower_function(
    fn: Function,
    constants: Sequence[int],
    target: Target,
    symbol: str,
    plain: bool = False,
    record: Any = None,
) -> Lowered:
    """Scheduled loops for a fused function, whose inputs at the indices `constants` are constant; unscheduled if
    `plain`. A `record` determines the schedule."""
    own = None if plain else scheduled_by_user(fn, constants, target, symbol)
    if own is not None:
        return own[0]
    func, names = loops_of(fn, constants, target)
    func = func.with_attr("global_symbol", symbol)
    if plain:
        return Lowered(func, None, (), (), func)
    with unasked():
        made = auto_schedule(func, target, constants=names, record=record).mod[symbol]
    if not names:
        return Lowered(made, None, (), (), func)
    before, rest, labels = split_constants(made, frozenset(names))
    return Lowered(rest, before, tuple(labels), names, func)
