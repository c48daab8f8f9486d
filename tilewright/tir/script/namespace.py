"""The names of `T`: expressions, declarations, loops and blocks as a script writes them."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...homes import home_of as _home_of
from ...ir import expr as _expr
from ...ir import ops as _ops
from ...ir.buffer import Buffer as _BufferNode
from ...ir.buffer import BufferRegion, MatchBufferRegion
from ...ir.dtype import DataType
from ...ir.expr import (
    BufferLoad,
    Call,
    Cast,
    CommReducer,
    FloatImm,
    IntImm,
    IterVar,
    IterVarType,
    PrimExpr,
    Reduce,
    SizeVar,
    StringImm,
    Var,
    const,
    convert,
)
from ...ir.expr import Let as _LetNode
from ...ir.expr import Range as _RangeNode
from ...ir.op import Op
from ...ir.printer_calls import DTYPE_FIRST, DTYPE_LAST, INFERRED, default_dtype
from ...ir.printer_ranges import difference
from ...ir.stmt import BufferStore, Evaluate, ForKind, Prefetch
from ...ir.types import PointerType, PrimType, Type
from .regions import as_load, region_of
from .specs import (
    AllocateSpec,
    AllocBuffer,
    AssertSpec,
    AttrSpec,
    AxisSpec,
    BlockSpec,
    BufferSpec,
    DeclSpec,
    Directive,
    EnvThread,
    InitSpec,
    LaunchSpec,
    LetSpec,
    LoopSpec,
    MatchSpec,
    MetaVar,
    RealizeSpec,
    RemapSpec,
    fresh_var,
)


# -------------------------------------------------------------------------------- types
class Scalar:
    """`T.float32`: an annotation, a constant (`T.float32(1.5)`), a cast, or a new variable (`T.int32()`)."""

    def __init__(self, dtype: str) -> None:
        self.dtype = DataType(dtype)
        self.__name__ = str(self.dtype)

    def __call__(self, value: Any = None, *, is_size_var: bool = False) -> PrimExpr:
        if value is None:
            return fresh_var(self.dtype, is_size_var)
        if isinstance(value, (BufferRegion, IterVar, PrimExpr)) and not isinstance(value, StringImm):
            return _ops.cast(self.dtype, value)
        if isinstance(value, (str, StringImm)):
            value = float(value if isinstance(value, str) else value.value)
        return const(value, self.dtype)

    @property
    def type(self) -> Type:
        return PrimType(self.dtype)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


class HandleType(Scalar):
    """`T.handle`: an untyped pointer; `T.handle("float32", "global")` a typed one."""

    def __call__(  # type: ignore[override]
        self, dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False
    ) -> Var:
        if dtype is None:
            return Var("", "handle")
        kind = dtype.dtype if isinstance(dtype, Scalar) else dtype
        return Var("", PointerType(PrimType(kind), storage_scope))

    @property
    def type(self) -> Type:
        return PointerType(PrimType("void"))


_parsing: ContextVar[bool] = ContextVar("_parsing", default=False)


@contextmanager
def parsing() -> Iterator[None]:
    """A script is being parsed: functions that it calls describe buffers for it."""
    held = _parsing.set(True)
    try:
        yield
    finally:
        _parsing.reset(held)


class BufferForm:
    """`T.Buffer((8,), "float32")`; the older `T.Buffer[(8,), "float32"]` means the same.

    In a script it describes a buffer, which gets its name from the script; elsewhere it makes one.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> BufferSpec | _BufferNode:
        described = self.spec(*args, **kwargs)
        return described if _parsing.get() else described.build("buffer")

    def spec(
        self,
        shape: Any,
        dtype: Any = "float32",
        data: Any = None,
        strides: Any = None,
        elem_offset: Any = None,
        scope: str = "global",
        align: int = -1,
        offset_factor: int = 0,
        buffer_type: str = "",
        axis_separators: Any = None,
    ) -> BufferSpec:
        return BufferSpec(
            shape, dtype_of(dtype), data, strides, elem_offset, scope, align, offset_factor, axis_separators
        )

    def __getitem__(self, items: Any) -> BufferSpec:
        if isinstance(items, tuple) and len(items) == 2 and isinstance(items[1], (str, Scalar)):
            return self.spec(*items)
        return self.spec(items)


def dtype_of(value: Any) -> DataType:
    """A data type given as text or as `T.float32`."""
    return value.dtype if isinstance(value, Scalar) else DataType(str(value))


Buffer = BufferForm()
handle = HandleType("handle")


def var(dtype: Any, name: str = "") -> Var:
    """A variable."""
    return Var(name, dtype_of(dtype))


def alloc_buffer(*args: Any, **kwargs: Any) -> AllocBuffer:
    """A buffer with the lifetime of the enclosing block."""
    return AllocBuffer(Buffer.spec(*args, **kwargs))


def match_buffer(source: Any, shape: Any = None, dtype: Any = None, *args: Any, **kwargs: Any) -> MatchSpec:
    """The buffer of a parameter, or in a block a view of a region."""
    if isinstance(source, (BufferLoad, BufferRegion, _BufferNode)):
        region = region_of(source)
        shape = [r.extent for r in region.region] if shape is None else shape
        return MatchSpec(region, Buffer.spec(shape, dtype or region.buffer.dtype, *args, **kwargs))
    if shape is None:
        raise TypeError("T.match_buffer of a parameter needs a shape")
    return MatchSpec(source, Buffer.spec(shape, dtype or "float32", *args, **kwargs))


def decl_buffer(*args: Any, **kwargs: Any) -> DeclSpec:
    """Declare a buffer over `data`, or over memory of its own without it; of a buffer: declare that buffer from here
    on."""
    if args and isinstance(args[0], _BufferNode):
        return DeclSpec(None, args[0])
    return DeclSpec(Buffer.spec(*args, **kwargs))


def allocate(
    extents: Any, dtype: Any, scope: str = "global", condition: Any = True, annotations: Any = None
) -> AllocateSpec:
    """Memory to the end of the suite."""
    items = extents if isinstance(extents, (list, tuple)) else [extents]
    return AllocateSpec(tuple(items), dtype_of(dtype), scope, condition, dict(annotations or {}))


def allocate_const(data: Any, dtype: Any, extents: Any, annotations: Any = None) -> AllocateSpec:
    """Constant memory to the end of the suite."""
    import numpy as np

    sizes = [int(convert(e)) for e in extents]  # type: ignore[call-overload]
    name = str(dtype_of(dtype))
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        array = np.array(data, dtype=getattr(ml_dtypes, name)).reshape(sizes)
    else:
        array = np.array(data, dtype=name).reshape(sizes)
    return AllocateSpec(tuple(extents), dtype_of(dtype), "global", True, dict(annotations or {}), array)


# -------------------------------------------------------------------------------- loops
def _loop(kind: ForKind) -> Callable[..., LoopSpec]:
    def loop(start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None) -> LoopSpec:
        bounds = (0, start) if stop is None else (start, stop)
        return LoopSpec(kind, [bounds], dict(annotations or {}))

    return loop


serial, parallel = _loop(ForKind.SERIAL), _loop(ForKind.PARALLEL)
vectorized, unroll = _loop(ForKind.VECTORIZED), _loop(ForKind.UNROLLED)


def thread_binding(
    start: Any, stop: Any = None, thread: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> LoopSpec:
    """A loop bound to a thread axis: `thread="threadIdx.x"`."""
    if thread is None and isinstance(stop, str):
        stop, thread = None, stop
    if thread is None:
        raise ValueError('T.thread_binding needs an axis: thread="threadIdx.x"')
    bounds = (0, start) if stop is None else (start, stop)
    return LoopSpec(ForKind.THREAD_BINDING, [bounds], dict(annotations or {}), str(thread))


def grid(*extents: Any) -> LoopSpec:
    """A nest of plain loops, one for each extent."""
    if not extents:
        raise ValueError("T.grid needs at least one extent")
    return LoopSpec(ForKind.SERIAL, [tuple(e) if isinstance(e, (tuple, list)) else (0, e) for e in extents])


def plain_range(
    start: Any, stop: Any = None, step: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> LoopSpec:
    """Python's `range` in a script; it takes annotations, as `T.serial` does."""
    if step is not None and not (isinstance(step, int) and step == 1):
        raise ValueError("a loop advances by 1; multiply the index inside instead of giving `range` a step")
    return serial(start, stop, annotations=annotations)


# -------------------------------------------------------------------------------- blocks
class Axis:
    """`T.axis`: the iterators of a block."""

    @staticmethod
    def spatial(dom: Any, value: Any = None, dtype: Any = "int32") -> AxisSpec:
        return AxisSpec(dom, value, IterVar.DataPar)

    @staticmethod
    def reduce(dom: Any, value: Any = None, dtype: Any = "int32") -> AxisSpec:
        return AxisSpec(dom, value, IterVar.CommReduce)

    @staticmethod
    def scan(dom: Any, value: Any = None, dtype: Any = "int32") -> AxisSpec:
        return AxisSpec(dom, value, IterVar.Ordered)

    @staticmethod
    def opaque(dom: Any, value: Any = None, dtype: Any = "int32") -> AxisSpec:
        return AxisSpec(dom, value, IterVar.Opaque)

    @staticmethod
    def remap(kinds: str, bindings: Sequence[Any], dtype: Any = "int32") -> RemapSpec:
        if len(kinds) != len(bindings) or set(kinds) - set("SR"):
            raise ValueError(
                f"T.axis.remap({kinds!r}, …) takes one letter S or R for each of the {len(bindings)} loops"
            )
        return RemapSpec(kinds, list(bindings))

    S, R = spatial, reduce


axis = Axis()


def block(name: str = "", no_realize: bool = False, exec_scope: str = "") -> BlockSpec:
    """`with T.block("C"):`."""
    return BlockSpec(name, no_realize)


def init() -> InitSpec:
    """`with T.init():` the statements before the first step of a reduction."""
    return InitSpec()


def _directive(name: str, docstring: str) -> Callable[..., Directive]:
    def build(*args: Any) -> Directive:
        return Directive(name, args)

    build.__name__, build.__doc__ = name, docstring
    return build


reads = _directive("reads", "The regions that the block reads.")
writes = _directive("writes", "The regions that the block writes.")
where = _directive("where", "The condition under which the block runs.")
block_attr = _directive("block_attr", "Annotations of the block.")
func_attr = _directive("func_attr", "Attributes of the function.")


# -------------------------------------------------------------------------------- statements
def attr(node: Any, attr_key: str, value: Any) -> AttrSpec:
    """An attribute of the statements that follow."""
    return AttrSpec(node, attr_key, value)


def env_thread(thread_tag: str, dtype: Any = "int32") -> EnvThread:
    """A thread axis to be launched later."""
    return EnvThread(thread_tag, dtype_of(dtype))


def launch_thread(thread: Any, extent: Any) -> LaunchSpec:
    """Launch the statements that follow on `extent` threads of an axis."""
    return LaunchSpec(thread, extent)


def LetStmt(value: Any, type_annotation: Any = None, *, var: Any = None) -> LetSpec:
    """`with T.LetStmt(value) as x:`."""
    return LetSpec(value, type_annotation, var)


def Assert(condition: Any, message: Any) -> AssertSpec:
    """`with T.Assert(condition, message):`."""
    return AssertSpec(condition, message)


def realize(buffer_slice: Any, storage_scope: str, condition: Any = True) -> RealizeSpec:
    """Realize at least the region of a buffer for the statements that follow."""
    return RealizeSpec(region_of(buffer_slice), storage_scope, condition)


def evaluate(value: Any) -> Evaluate:
    """Evaluate an expression for its effect."""
    return Evaluate(convert(value))


def buffer_store(buffer: _BufferNode, value: Any, indices: Any, predicate: Any = None) -> BufferStore:
    """`buffer[indices] = value`, in the lanes where `predicate` holds."""
    held = const(value, buffer.dtype) if isinstance(value, (bool, int, float)) else value
    return BufferStore(buffer, held, indices, predicate)


def prefetch(target: Any, *args: Any, **kwargs: Any) -> Any:
    """Prefetch a region of a buffer; of an address, the operator of that name."""
    if isinstance(target, _BufferNode):
        return Prefetch(target, tuple(args[0]))
    return _call("prefetch")(target, *args, **kwargs)


def meta_var(value: Any) -> MetaVar:
    """A Python value to be bound as it is, without a variable in the program."""
    return MetaVar(value)


# -------------------------------------------------------------------------------- expressions
def Range(begin: Any, end: Any = None) -> _RangeNode:
    """The integers from `begin` to before `end`."""
    if end is None:
        return _RangeNode(begin)
    low, high = _ops.match(convert(begin), convert(end))
    return _RangeNode.from_min_extent(low, difference(high, low))


def cast(value: Any, dtype: Any) -> PrimExpr:
    """`value` as `dtype`; constants are converted at once."""
    return _ops.cast(dtype_of(dtype), value)


def Cast_(dtype: Any, value: Any) -> PrimExpr:
    """Exactly a conversion, of a constant too."""
    return Cast(dtype_of(dtype), convert(value))


def min(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """The lesser of two."""
    return _ops.min_of(a, b)


def max(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """The greater of two."""
    return _ops.max_of(a, b)


def Let(expr: Any, where: Mapping[Var, Any]) -> PrimExpr:
    """`expr` with variables bound to values."""
    out = convert(expr)
    for name, value in reversed(list(where.items())):
        out = _LetNode(name, convert(as_load(value) if isinstance(value, BufferRegion) else value), out)
    return out


def iter_var(v: Any, dom: Any, iter_type: str, thread_tag: str) -> IterVar:
    """A variable with its domain and meaning."""
    return IterVar(dom, v, IterVarType[iter_type], thread_tag)


def comm_reducer(combiner: Callable[..., Any], identity: Sequence[Any]) -> CommReducer:
    """A commutative reducer from a function of two values (or two tuples) and its identity."""
    start = tuple(convert(i) for i in identity)
    names = list(inspect.signature(combiner).parameters)
    if len(names) != 2 * len(start):
        raise TypeError(f"the combiner takes {len(names)} arguments; {2 * len(start)} are needed")
    made = [Var(n, start[i % len(start)].dtype) for i, n in enumerate(names)]
    result = combiner(*made)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    n = len(start)
    return CommReducer(tuple(made[:n]), tuple(made[n:]), tuple(convert(r) for r in results), start)


def reduce(
    combiner: CommReducer,
    source: Sequence[Any],
    axis: Sequence[IterVar],
    condition: Any = True,
    value_index: int = 0,
    init: Sequence[Any] = (),
) -> PrimExpr:
    """One component of a reduction over `axis`."""
    return Reduce(
        combiner,
        tuple(convert(s) for s in source),
        tuple(axis),
        convert(condition),
        value_index,
        tuple(convert(i) for i in init),
    )


def call_intrin(dtype: Any, name: Any, *args: Any) -> Call:
    """Exactly this call."""
    return Call(dtype_of(dtype), Op.get(name) if isinstance(name, str) else name, args)


def Call_(dtype: Any, op: Any, args: Sequence[Any]) -> Call:
    """A call of an operator or of a function of the module."""
    return Call(dtype_of(dtype), op, tuple(args))


def type_annotation(dtype: Any) -> Call:
    """A data type as an argument."""
    return Call(dtype_of(dtype), Op.get("tir.type_annotation"), ())


def target(config: Any, host: Any = None) -> Any:
    """A compilation target as an attribute."""
    cls = _home_of("targets").Target
    return cls(config) if host is None else cls(config, host)


# calls that give a value of the type of their second argument
_OF_SECOND = frozenset(("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down", "atomic_add"))


def _call(name: str) -> Callable[..., Any]:
    """The function that builds a call of operator `name` in the form that scripts use."""
    op = Op.get(f"tir.{name}")
    infer = INFERRED.get(name)

    def build(*args: Any, dtype: Any = None) -> Any:
        if name in _OF_SECOND and dtype is None and len(args) > 1:
            dtype = convert(args[1]).dtype
        if name == "dp4a" and dtype is None and not isinstance(args[0], str):
            args, dtype = (*args, 0)[:3], "int32"
        if name in DTYPE_FIRST:
            if dtype is None:
                dtype, *rest = args
                args = tuple(rest)
        elif name in DTYPE_LAST:
            if dtype is None:
                *rest, dtype = args
                args = tuple(rest)
        elif dtype is None and infer is not None:
            return infer(*args)
        kind = default_dtype(name) if dtype is None else dtype_of(dtype)
        if name == "reinterpret" and len(args) == 1 and convert(args[0]).dtype is kind:
            return convert(args[0])
        return Call(kind, op, args)

    build.__name__ = name
    return build


_RAW = (
    "Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE LT LE GT GE And Or Not Select Ramp Broadcast "
    "Shuffle IterVar BufferLoad"
)
_made: dict[str, Any] = {
    **{name: getattr(_expr, name) for name in _RAW.split()},
    "IntImm": IntImm,
    "FloatImm": FloatImm,
    "StringImm": StringImm,
    "Var": Var,
    "SizeVar": SizeVar,
    "Cast": Cast_,
    "Call": Call_,
    "CommReducer": CommReducer,
    "BufferRegion": BufferRegion,
    "MatchBufferRegion": MatchBufferRegion,
    "ramp": _expr.Ramp,
    "broadcast": _expr.Broadcast,
    "int": Scalar("int32"),
    "float": Scalar("float32"),
    "boolean": Scalar("bool"),
    "Ptr": handle,
}
_FUNCTIONS = (
    "truncdiv truncmod floordiv floormod ceildiv div indexdiv indexmod all any likely min_value max_value "
    "infinity isnan isinf isfinite abs fabs power pow if_then_else select logical_and logical_or logical_not "
    "llvm_lookup_intrinsic_id"
)


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of scripts that may be told its data type, as older scripts do; the type must be the one it has."""

    @functools.wraps(function)
    def build(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if dtype is not None and dtype_of(dtype) is not made.dtype:
            raise TypeError(f"T.{function.__name__}(…, dtype={str(dtype)!r}) gives {made.dtype}: `{made}`")
        return made

    return build


_made.update({name: _typed(getattr(_ops, name)) for name in _FUNCTIONS.split()})


def lookup(name: str) -> Any:
    """The object of `T.name`: a fixed name, an operator, or a data type."""
    found = _made.get(name)
    if found is not None:
        return found
    if f"tir.{name}" in Op.list_op_names():
        _made[name] = found = _call(name)
        return found
    try:
        _made[name] = found = Scalar(name)
    except ValueError:
        raise AttributeError(_unknown(name)) from None
    if not name:
        raise AttributeError(_unknown(name))
    return found


def all_names() -> list[str]:
    """Every name of `T`, except data types with lanes."""
    kinds = [f"{c}{b}" for c in ("int", "uint", "float") for b in (8, 16, 32, 64) if (c, b) != ("float", 8)]
    ops = [n.removeprefix("tir.") for n in Op.list_op_names() if n.startswith("tir.")]
    return sorted({*_made, *ops, *kinds, "bool", "bfloat16", *PUBLIC})


def _unknown(name: str) -> str:
    # Tools probe every object for names with underscores, and discard the message.
    near = [] if name.startswith("_") else difflib.get_close_matches(name, all_names(), 3, 0.7)
    hint = f"; did you mean {' or '.join(f'T.{n}' for n in near)}?" if near else ""
    return f"T has no name {name!r}{hint}"


PUBLIC = [
    "Assert",
    "Buffer",
    "Let",
    "LetStmt",
    "Range",
    "alloc_buffer",
    "allocate",
    "allocate_const",
    "attr",
    "axis",
    "block",
    "block_attr",
    "buffer_store",
    "call_intrin",
    "cast",
    "comm_reducer",
    "decl_buffer",
    "env_thread",
    "evaluate",
    "func_attr",
    "grid",
    "handle",
    "init",
    "iter_var",
    "launch_thread",
    "match_buffer",
    "max",
    "meta_var",
    "min",
    "parallel",
    "prefetch",
    "reads",
    "realize",
    "reduce",
    "serial",
    "target",
    "thread_binding",
    "type_annotation",
    "unroll",
    "var",
    "vectorized",
    "where",
    "writes",
]

__all__ = [
    *PUBLIC,
    "Axis",
    "BufferForm",
    "HandleType",
    "Scalar",
    "all_names",
    "dtype_of",
    "lookup",
    "plain_range",
]
