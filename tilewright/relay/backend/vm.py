"""The virtual machine: programs with branches, loops, closures and sizes known only when they run.

It walks the fused program and calls the same compiled kernels as the ahead-of-time executor. A kernel whose sizes
are not known before is compiled when it is first called, with variables for them, once for each pattern of sizes that
are equal; where that cannot be (the shape of the result depends on values), once for each set of sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...arith import Analyzer
from ...ir.deep import deep_programs
from ...ir.errors import BuildError, TVMError
from ...ir.expr import IntImm, const_value
from ...ir.expr import Var as TirVar
from ...ir.functor import substitute
from ...ir.module import GlobalVar, IRModule
from ...ir.transform import PassContext
from ...runtime.container import tuple_object
from ...runtime.devices import Device
from ...runtime.ndarray import NDArray, array, empty
from ...target import Target
from ..analysis import post_order
from ..binding import bind
from ..expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var, const
from ..op.registry import RelayOp
from ..transform.fuse_ops import fuse_ops, is_primitive
from ..transform.infer_type import infer_module, infer_type
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, is_dynamic, tensor_fields
from ..visitor import flow_inputs
from .kernel import Kernel, job_of
from .lower import lift_constants
from .single import linked
from .te_compiler import compile_all
from .weights import Packers

__all__ = ["Closure", "Machine"]

_SMALL = 64  # elements: a tensor of sizes, which may decide the shape of a result


class Closure:
    """A function as a value, with what it sees of the frame that it was made in."""

    __slots__ = ("fn", "frame")

    def __init__(self, fn: Function, frame: _Frame | None) -> None:
        self.fn, self.frame = fn, frame


class _Frame:
    """The values of one call of a function."""

    __slots__ = ("above", "values")

    def __init__(self, above: _Frame | None) -> None:
        self.above = above
        self.values: dict[Any, Any] = {}

    def find(self, var: Var) -> Any:
        at: _Frame | None = self
        while at is not None:
            if var in at.values:
                return at.values[var]
            at = at.above
        raise TVMError(f"the variable %{var.name_hint} has no value")


class _Compiled:
    """A kernel ready to be called, with its constants packed; `names` are the sizes that it takes any value of."""

    def __init__(
        self,
        kernel: Kernel,
        constants: Sequence[Constant],
        known: Sequence[int],
        kinds: list[Any],
        names: Sequence[TirVar] = (),
    ) -> None:
        self.known, self.kinds, self.names = frozenset(known), kinds, tuple(names)
        given = {name: c.data for name, c in zip(kernel.constants, constants, strict=True)}
        if kernel.before is not None:
            given.update(Packers({kernel.symbol: kernel}).run(kernel.before, given))
        self.constants = [given[name] for name in kernel.labels]
        self.function = linked(kernel)
        self._shapes: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def __call__(self, tensors: list[Any], values: tuple[int, ...] = ()) -> list[NDArray]:
        shapes = self._shapes.get(values)
        if shapes is None:
            sizes = dict(zip(self.names, values, strict=True))
            shapes = self._shapes[values] = [tuple(_size(d, sizes) for d in k.shape) for k in self.kinds]
        outs = [empty(s, str(k.dtype)) for s, k in zip(shapes, self.kinds, strict=True)]
        given = [t for i, t in enumerate(tensors) if i not in self.known]
        self.function(*given, *outs, *self.constants)
        return outs


def _size(dim: Any, sizes: dict[TirVar, int]) -> int:
    if isinstance(dim, int):
        return dim
    found = const_value(
        Analyzer().simplify(substitute(dim, {v: IntImm(v.dtype, n) for v, n in sizes.items()}))
    )
    if not isinstance(found, int):
        raise TVMError(f"the size `{dim}` is not known from the sizes of the arguments")
    return found


class Machine:
    """Runs the functions of a module."""

    def __init__(self, mod: IRModule, target: Any, device: Device) -> None:
        from ..build_module import as_target, pipeline

        if device.device_type != 1:
            raise BuildError(f"the virtual machine runs on the CPU, not on {device}")
        self.target: Target = as_target(target)
        self.context = PassContext.current()
        with deep_programs(), self.target:
            typed = infer_module(mod)
            typed = pipeline()(typed)
            level = self.context.opt_level
            depth = int(self.context.option("relay.FuseOps.max_depth"))
            self.mod = infer_module(
                typed.map_functions(
                    lambda f: (
                        fuse_ops(f, level, depth) if isinstance(f, Function) and not is_primitive(f) else f
                    )
                )
            )
            self._arrays: dict[Any, list[NDArray]] = {}
            self._static: dict[Any, _Compiled] = {}
            self._symbolic: dict[Any, _Compiled | None] = {}
            self._by_shape: dict[Any, _Compiled] = {}
            self._compile_static()

    def _compile_static(self) -> None:
        """Compile the kernels whose sizes are known, all at once."""
        calls = [
            e
            for f in self.mod.functions.values()
            if isinstance(f, Function)
            for e in post_order(f)
            if isinstance(e, Call) and is_primitive(e.op) and not _any_dynamic(e)
        ]
        jobs: dict[Call, Any] = {}
        for e in calls:
            fn, arrays = lift_constants(e.op)
            self._arrays[e] = [c.data for c in arrays]
            known = _known((*e.args, *arrays))
            jobs[e] = job_of(fn, known, self.target)
        kernels = compile_all(list(jobs.values()), self.target)
        for e, job in jobs.items():
            constants = [a for a in (*e.args, *lift_constants(e.op)[1]) if isinstance(a, Constant)]
            self._static[e] = _Compiled(
                kernels[job.key], constants, job.constants, tensor_fields(e.checked_type)
            )

    # -- running -----------------------------------------------------------------------------------
    def run(self, name: str, args: Sequence[Any]) -> Any:
        """Call a function of the module."""
        fn = self.mod[name]
        with deep_programs(), self.target, self.context:
            frame = _Frame(None)
            frame.values.update(zip(fn.params, [_taken(a) for a in args], strict=True))
            return _given(self.tail(fn.body, frame))

    def tail(self, expr: Any, frame: _Frame) -> Any:
        """The value of an expression that ends a function: loops written as recursion take no room."""
        while True:
            if isinstance(expr, Let):
                made = self.value(expr.value, frame)
                frame.values[expr.var] = made
                expr = expr.body
            elif isinstance(expr, If):
                expr = expr.true_branch if self.truth(expr, frame) else expr.false_branch
            elif isinstance(expr, Call) and not is_primitive(expr.op) and not isinstance(expr.op, RelayOp):
                if expr in frame.values:
                    return frame.values[expr]
                args = [self.value(a, frame) for a in expr.args]
                called = self.closure(expr.op, frame)
                frame = _Frame(called.frame)
                frame.values.update(zip(called.fn.params, args, strict=True))
                expr = called.fn.body
            else:
                return self.value(expr, frame)

    def truth(self, branch: If, frame: _Frame) -> bool:
        return bool(np.asarray(self.value(branch.cond, frame)).item())

    def closure(self, op: Any, frame: _Frame) -> Closure:
        if isinstance(op, GlobalVar):
            return Closure(self.mod[op], None)
        found = self.value(op, frame)
        if not isinstance(found, Closure):
            raise TVMError(f"{type(op).__name__} is called and is no function")
        return found

    def value(self, expr: Any, frame: _Frame) -> Any:
        """The value of an expression; chains of calls are walked without recursion."""
        values = frame.values
        stack = [expr]
        while stack:
            at = stack[-1]
            if at in values:
                stack.pop()
                continue
            waiting = [b for b in flow_inputs(at) if b not in values]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            values[at] = self.one(at, frame)
            stack.pop()
        return values[expr]

    def one(self, e: Any, frame: _Frame) -> Any:
        """The value of an expression whose operands have theirs."""
        values = frame.values
        if isinstance(e, Var):
            return frame.find(e)
        if isinstance(e, Constant):
            return e.data
        if isinstance(e, Tuple):
            return tuple(values[f] for f in e.fields)
        if isinstance(e, TupleGetItem):
            return values[e.tuple_value][e.index]
        if isinstance(e, Function):
            return Closure(e, frame)
        if isinstance(e, GlobalVar):
            return Closure(self.mod[e], None)
        if isinstance(e, Call) and is_primitive(e.op):
            return self.kernel(e, [values[a] for a in e.args])
        if isinstance(e, (Let, If, Call)):
            return self.tail(e, frame)
        raise TVMError(f"the virtual machine does not know what a {type(e).__name__} is")

    def kernel(self, e: Call, args: list[Any]) -> Any:
        """The result of a kernel: compiled before, for any sizes of this pattern, or for these sizes alone."""
        static = self._static.get(e)
        tensors = _flat(args)
        if static is not None:
            return _shaped(e.checked_type, iter(static([*tensors, *self._arrays[e]])))
        pattern, values = _pattern(e.op, tensors)
        if (e, pattern) not in self._symbolic:
            self._symbolic[e, pattern] = self.for_any_size(e, pattern)
        general = self._symbolic[e, pattern]
        if general is not None:
            return _shaped(e.checked_type, iter(general([*tensors, *self._arrays.get(e, ())], values)))
        key = (e, *((t.shape, t.dtype) for t in tensors), *_sizes(tensors))
        if key not in self._by_shape:
            self._by_shape[key] = self.specialise(e.op, args)
        return _shaped(e.checked_type, iter(self._by_shape[key](tensors)))

    def for_any_size(self, e: Call, pattern: tuple[Any, ...]) -> _Compiled | None:
        """A kernel with variables for the sizes that are not known, or None where that cannot be."""
        names: dict[int, TirVar] = {}
        leaves = iter(pattern)
        params = [Var(p.name_hint, _with_names(p.checked_type, leaves, names)) for p in e.op.params]
        try:
            body = bind(e.op.body, dict(zip(e.op.params, params, strict=True)))
            fn, arrays = lift_constants(infer_type(Function(params, body, None, None, e.op.attrs)))
            kinds = tensor_fields(fn.checked_type.ret_type)
            if not names or any(isinstance(d, AnySize) for k in kinds for d in k.shape):
                return None
            job = job_of(fn, _known((*e.args, *arrays)), self.target)
            kernel = compile_all([job], self.target)[job.key]
        except TVMError:
            return None  # it is tried again for the sizes at hand, which says what is wrong
        self._arrays[e] = [c.data for c in arrays]
        constants = [a for a in (*e.args, *arrays) if isinstance(a, Constant)]
        return _Compiled(kernel, constants, job.constants, kinds, list(names.values()))

    def specialise(self, fn: Function, args: list[Any]) -> _Compiled:
        """A kernel for arguments of these sizes."""
        params = [Var(p.name_hint, _type_of(a)) for p, a in zip(fn.params, args, strict=True)]
        body = bind(fn.body, dict(zip(fn.params, params, strict=True)))
        made = infer_type(Function(params, body, None, None, fn.attrs))
        known: list[int] = []
        if is_dynamic(made.checked_type.ret_type):
            made, known = self._with_sizes(made, args)
        made, arrays = lift_constants(made)
        count = len(_flat(args)) - len(known)
        job = job_of(made, range(count, count + len(arrays)), self.target)
        kernel = compile_all([job], self.target)[job.key]
        return _Compiled(kernel, arrays, known, tensor_fields(made.checked_type.ret_type))

    def _with_sizes(self, fn: Function, args: list[Any]) -> tuple[Function, list[int]]:
        """The function with small tensors of integers put in: they may be sizes."""
        from .. import transform

        sizes = {
            p: const(a)
            for p, a in zip(fn.params, args, strict=True)
            if isinstance(a, NDArray) and _is_sizes(a)
        }
        names = [e.op.name for e in post_order(fn) if isinstance(e, Call) and isinstance(e.op, RelayOp)]
        if sizes and "DynamicToStatic" in vars(transform):
            bound: Any = bind(fn, sizes)
            mod = transform.DynamicToStatic()(
                infer_module(IRModule({"main": Function(bound.params, bound.body)}))
            )
            main = infer_module(mod)["main"].with_attr("Primitive", 1)
            main = infer_type(main)
            if not is_dynamic(main.checked_type.ret_type):
                return main, [i for i, p in enumerate(fn.params) if p in sizes]
        raise BuildError(
            f"the size of the result of {', '.join(names)} depends on values, which is not supported yet"
        )


def _pattern(fn: Function, tensors: list[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Which of the sizes that are not known are equal to each other, by numbers, and their values.

    Sizes of 0 and 1 stand for themselves (as -1 and -2): what is broadcast is another program.
    """
    numbers: dict[int, int] = {}
    out: list[int] = []
    kinds = [t for p in fn.params for t in tensor_fields(p.checked_type)]
    for kind, tensor in zip(kinds, tensors, strict=True):
        for d, n in zip(kind.shape, tensor.shape, strict=True):
            if not isinstance(d, int):
                out.append(n - 2 if n <= 1 else numbers.setdefault(n, len(numbers)))
    return tuple(out), tuple(numbers)


def _with_names(kind: Any, leaves: Iterator[int], names: dict[int, TirVar]) -> Any:
    """The type with a variable for each of the sizes that are not known, as the pattern says."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(_with_names(f, leaves, names) for f in kind.fields))
    dims: list[Any] = []
    for d in kind.shape:
        if not isinstance(d, int):
            n = next(leaves)
            d = n + 2 if n < 0 else names.setdefault(n, TirVar(f"n{n}", "int32"))
        dims.append(d)
    return TensorType(dims, kind.dtype)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, NDArray) and value.dtype in ("int32", "int64") and value.size <= _SMALL


def _sizes(tensors: list[Any]) -> list[Any]:
    """What small tensors of integers hold: kernels may be made for it."""
    return [t.numpy().tobytes() for t in tensors if _is_sizes(t)]


def _known(args: Sequence[Any]) -> list[int]:
    """The places of constants among the tensors that a call passes."""
    out, at = [], 0
    for a in args:
        if isinstance(a, Constant):
            out.append(at)
        at += len(tensor_fields(a.checked_type))
    return out


def _any_dynamic(e: Call) -> bool:
    return is_dynamic(e.checked_type) or any(is_dynamic(a.checked_type) for a in e.args)


def _flat(values: Any) -> list[Any]:
    out: list[Any] = []
    for v in values:
        out += _flat(v) if isinstance(v, tuple) else [v]
    return out


def _type_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return TupleType(tuple(_type_of(v) for v in value))
    return TensorType(value.shape, str(value.dtype))


def _shaped(kind: Any, outs: Any) -> Any:
    if isinstance(kind, TupleType):
        return tuple(_shaped(f, outs) for f in kind.fields)
    return next(outs)


def _taken(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_taken(v) for v in value)
    if isinstance(value, (NDArray, Closure)):
        return value
    return array(value)


def _given(value: Any) -> Any:
    return tuple_object([_given(v) for v in value]) if isinstance(value, tuple) else value
