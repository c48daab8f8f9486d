"""A fused function as a sequence of calls of kernels over planned memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.errors import BuildError
from ...runtime.dtypes import ELEMENTS
from ..expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from ..interface import output_names
from ..op.registry import RelayOp
from ..op.traits import traits_of
from ..transform.fuse_ops import is_primitive
from ..ty import TensorType, is_dynamic, tensor_fields
from ..visitor import in_order
from .external import is_external
from .graph_form import USE_MACHINE
from .lower import field_range, inner_order, lift_constants, missing_computes
from .memory_plan import ALIGNMENT, Lifetime, arena_peak, plan_arena
from .work import nodes_of


@dataclass(eq=False, slots=True)
class Storage:
    """A piece of memory: an input, a constant, an output, or a part of the arena."""

    kind: str  # "input", "constant", "output" or "arena"
    nbytes: int
    index: int = 0  # index of the input or output
    constant: Constant | None = None
    first: int = 0  # the step that writes it
    last: int = -1  # the last step that reads it
    offset: int = 0  # offset in the arena


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor in a piece of memory."""

    storage: Storage
    shape: tuple[int, ...]
    dtype: str


@dataclass(eq=False, slots=True)
class Step:
    """A call of a kernel, or (without one) a copy of memory."""

    fn: Function | None
    inputs: list[Value]
    outputs: list[Value]
    name: str = ""
    span: Any = None
    nodes: list[str] = field(default_factory=list)  # of the source: see work.py
    scratch: list[Storage] = field(default_factory=list)  # workspaces of the kernel

    @property
    def known(self) -> list[int]:
        """The indices of the constant inputs."""
        return [k for k, v in enumerate(self.inputs) if v.storage.kind == "constant"]


@dataclass(eq=False, slots=True)
class Program:
    """All steps of a model in order, with its inputs and results."""

    inputs: list[tuple[str, Value]]
    outputs: list[Value]
    output_names: list[str]
    steps: list[Step]
    arena: int = 0
    peak: int = 0
    lower_bound: int = 0
    storages: list[Storage] = field(default_factory=list)
    alignment: int = ALIGNMENT
    spread: bool = (
        False  # whether small tensors are spread over the arena, against cache contention between cores
    )

    @property
    def weights(self) -> int:
        """The bytes of all constants."""
        held = {v.storage for step in self.steps for v in step.inputs if v.storage.kind == "constant"}
        return sum(s.nbytes for s in held)


def make_program(main: Function, alignment: int = ALIGNMENT, spread: bool = False) -> Program:
    """The steps of a fused function, with memory for every tensor. Needs: types."""
    program = _Builder(main).run()
    program.alignment, program.spread = alignment, spread
    _plan(program)
    return program


def plan_scratch(program: Program, sizes: Mapping[int, Sequence[int]]) -> None:
    """Allocate the workspaces of some steps in the arena, each live during its step."""
    for i, each in sizes.items():
        for size in each:
            program.steps[i].scratch.append(Storage("arena", size, first=i, last=i))
        program.storages += program.steps[i].scratch
    if any(sizes.values()):
        _plan(program)


def _value(storage_kind: str, kind: TensorType, **more: Any) -> Value:
    nbytes = ELEMENTS[str(kind.dtype)].itemsize * math.prod(kind.shape)
    return Value(Storage(storage_kind, nbytes, **more), kind.shape, str(kind.dtype))


class _Builder:
    def __init__(self, main: Function) -> None:
        self.main = main
        self.values: dict[Any, list[Value]] = {}
        self.steps: list[Step] = []
        self.storages: list[Storage] = []
        self.lifted: dict[Function, tuple[Function, list[Constant]]] = {}

    def run(self) -> Program:
        inputs: list[tuple[str, Value]] = []
        names: set[str] = set()
        for p in self.main.params:
            fields = tensor_fields(p.checked_type)
            self.values[p] = []
            for i, kind in enumerate(fields):
                name = p.name_hint if isinstance(p.checked_type, TensorType) else f"{p.name_hint}.{i}"
                if name in names:
                    raise BuildError(f"two parameters of the function are named {name!r}: rename one of them")
                names.add(name)
                _refuse_dynamic(kind, f"parameter %{name}")
                value = _value("input", kind, index=len(inputs))
                inputs.append((name, value))
                self.values[p].append(value)
        order = _order(self.main.body)
        _refuse_missing(order)
        for e in order:
            if e not in self.values:
                self.values[e] = self.visit(e)
        outputs = self.results(self.values[self.main.body])
        names_out = output_names(self.main, len(outputs))
        return Program(inputs, outputs, names_out, self.steps, storages=self.storages)

    def visit(self, e: Any) -> list[Value]:
        if isinstance(e, Call) and is_primitive(e.op):
            return self.call(e)
        if isinstance(e, Constant):
            return [_value("constant", e.checked_type, constant=e)]
        if isinstance(e, Tuple):
            return [v for f in e.fields for v in self.values[f]]
        if isinstance(e, TupleGetItem):
            start, count = field_range(e.tuple_value.checked_type, e.index)
            return self.values[e.tuple_value][start : start + count]
        if is_primitive(e):
            return []
        if isinstance(e, Var):
            raise BuildError(f"the variable %{e.name_hint} is free: it has no value")
        what = {If: "a branch", Let: "a let", Function: "a closure"}.get(type(e), f"a {type(e).__name__}")
        raise BuildError(f"{what} cannot be part of an ahead-of-time program; {USE_MACHINE}")

    def call(self, e: Call) -> list[Value]:
        if e.op not in self.lifted:
            self.lifted[e.op] = (e.op, []) if is_external(e.op) else lift_constants(e.op)
        fn, arrays = self.lifted[e.op]
        for c in arrays:
            if c not in self.values:
                self.values[c] = self.visit(c)
        inputs = [v for a in (*e.args, *arrays) for v in self.values[a]]
        if _is_view(fn) and len(inputs) == 1 and not is_external(fn):
            kind = e.checked_type
            return [Value(inputs[0].storage, kind.shape, str(kind.dtype))]
        outputs = []
        for kind in tensor_fields(e.checked_type):
            _refuse_dynamic(kind, "a result")
            outputs.append(_value("arena", kind, first=len(self.steps), last=len(self.steps)))
        for v in inputs:
            v.storage.last = len(self.steps)
        self.storages += [v.storage for v in outputs]
        self.steps.append(Step(fn, inputs, outputs, span=e.span, nodes=nodes_of(e.op)))
        return outputs

    def results(self, values: list[Value]) -> list[Value]:
        """The outputs: written to the caller's memory, or copied there."""
        out: list[Value] = []
        for i, v in enumerate(values):
            if v.storage.kind == "arena":
                v.storage.kind, v.storage.index = "output", i
                out.append(v)
                continue
            made = Value(Storage("output", v.storage.nbytes, index=i), v.shape, v.dtype)
            v.storage.last = max(v.storage.last, len(self.steps))
            self.steps.append(Step(None, [v], [made], name="copy"))
            out.append(made)
        self.storages = [s for s in self.storages if s.kind == "arena"]
        return out


def _order(root: Any) -> list[Any]:
    """Expressions of the outer function in post-order; kernels are not entered."""

    def inside(e: Any) -> list[Any]:
        return [] if isinstance(e, (Function, If, Let)) else [b for b in e.children() if isinstance(b, Expr)]

    return in_order(root, inside)


def _refuse_dynamic(kind: TensorType, what: str) -> None:
    if is_dynamic(kind):
        raise BuildError(
            f"{what} is {kind}: its size is not known now; "
            'relay.create_executor("vm", …) runs such programs, or give the sizes when the model is imported'
        )


def _refuse_missing(order: list[Any]) -> None:
    """Refuse operators that cannot be compiled, all in one error."""
    found: dict[str, int] = {}
    for e in order:
        if not isinstance(e, Call):
            continue
        for name in missing_computes(e.op) if is_primitive(e.op) and not is_external(e.op) else ():
            found[name] = found.get(name, 0) + 1
        if isinstance(e.op, RelayOp):
            raise BuildError(f"the operator {e.op.name} was not fused: run relay.transform.FuseOps() first")
    if found:
        listed = ", ".join(f"{name} ({n} times)" if n > 1 else name for name, n in found.items())
        raise BuildError(f"these operators have no compute: {listed}; define it with register_compute")


def _is_view(fn: Function) -> bool:
    """Whether a fused function only reshapes its one parameter."""
    if len(fn.params) != 1 or not isinstance(fn.params[0].checked_type, TensorType):
        return False
    calls = [e for e in inner_order(fn) if not isinstance(e, Var)]
    return bool(calls) and all(isinstance(e, Call) and traits_of(e).view and len(e.args) == 1 for e in calls)


def _plan(program: Program) -> None:
    lifetimes = [Lifetime(s.nbytes, s.first, max(s.first, s.last)) for s in program.storages]
    offsets, program.arena = plan_arena(lifetimes, program.alignment, program.spread)
    program.lower_bound = arena_peak(lifetimes)
    for s, offset in zip(program.storages, offsets, strict=True):
        s.offset = offset
    _name_steps(program)


def _name_steps(program: Program) -> None:
    """Unique display names of steps, from their operators."""
    count: dict[str, int] = {}
    for step in program.steps:
        if step.fn is None:
            base = "copy"
        elif is_external(step.fn):
            base = str(step.fn.attrs["global_symbol"])
        else:
            names = [e.op.name for e in inner_order(step.fn) if isinstance(e, Call)]
            base = "fused_" + "_".join(n.replace(".", "_") for n in names)
        n = count[base] = count.get(base, 0) + 1
        step.name = base if n == 1 else f"{base}_{n - 1}"
