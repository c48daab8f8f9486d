"""`T` inside a builder: each name builds at once what a script would describe.

Names that build nothing by themselves (operators, data types) are those of the script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.buffer import Buffer as _Buffer
from ...ir.expr import IterVar, Var, convert
from ...ir.function import PrimFunc
from ...ir.stmt import Evaluate, IfThenElse, Stmt
from ...ir.stmt import While as _While
from ...tir.script import namespace as _script
from ...tir.script.function import with_root
from ...tir.script.parser import BlockFrame, type_of
from ...tir.script.specs import AxisSpec, Directive, LoopSpec
from .base import IRBuilder, IRBuilderFrame
from .ir import open_module


def __getattr__(name: str) -> Any:
    return getattr(_script, name) if name in _script.PUBLIC else _script.lookup(name)


# -------------------------------------------------------------------------------- functions
def prim_func(is_private: bool = False) -> IRBuilderFrame:
    """`with T.prim_func():`; the function is a result of the builder, or belongs to the module around it."""

    def leave(body: Stmt) -> PrimFunc | None:
        parser = IRBuilder.current().close_function()
        attrs, name = dict(parser.func_attrs), parser.func_name
        if name and not is_private:
            attrs = {"global_symbol": name, **attrs}
        body = with_root(body, parser.frames[0].allocs)
        made = PrimFunc(parser.params, body, parser.ret_type, parser.buffer_map, attrs)
        module = open_module()
        if module is None:
            return made
        if not name:
            raise ValueError("a function of a module has no name: call T.func_name in it")
        module.functions[module.global_var(name)] = made
        return None

    return IRBuilderFrame(lambda: IRBuilder.current().open_function() and None, leave)


def func_name(name: str) -> None:
    """The name of the function."""
    IRBuilder.current().parser.func_name = name


def func_attr(attrs: Mapping[str, Any]) -> None:
    """Attributes of the function."""
    IRBuilder.current().parser.func_attrs.update(attrs)


def func_ret(ret_type: Any) -> Any:
    """The type of the result of the function."""
    IRBuilder.current().parser.ret_type = type_of(ret_type)
    return ret_type


def arg(name: str, obj: Any) -> Any:
    """A parameter of the function: a variable, or a buffer."""
    parser = IRBuilder.current().parser
    IRBuilder.name(name, obj)
    if isinstance(obj, _Buffer):
        handle = Var(f"{name}_handle", "handle")
        parser.params.append(handle)
        parser.buffer_map[handle] = obj
        parser.owners.setdefault(obj.data, obj)
    elif isinstance(obj, Var):
        parser.params.append(obj)
    else:
        raise TypeError(f"T.arg({name!r}, …): a parameter is a variable or a T.Buffer, not {obj!r}")
    return obj


# -------------------------------------------------------------------------------- buffers
def Buffer(shape: Any, dtype: Any = "float32", *args: Any, **kwargs: Any) -> _Buffer:
    """A buffer."""
    name = kwargs.pop("buffer_name", "") or "buffer"
    return _script.Buffer.spec(shape, dtype, *args, **kwargs).build(name)


def match_buffer(param: Any, shape: Any = None, dtype: Any = "float32", *args: Any, **kwargs: Any) -> _Buffer:
    """The buffer of a parameter, or in a block a view of a region."""
    spec = _script.match_buffer(param, shape, dtype, *args, **kwargs)
    return IRBuilder.current().parser.buffer("buffer", spec, None)


def alloc_buffer(*args: Any, **kwargs: Any) -> _Buffer:
    """A buffer of the block around it."""
    return IRBuilder.current().parser.buffer("buffer", _script.alloc_buffer(*args, **kwargs), None)


# -------------------------------------------------------------------------------- blocks
def block(name: str = "", no_realize: bool = False) -> IRBuilderFrame:
    """`with T.block("C"):`."""
    spec = _script.block(name, no_realize)

    def enter() -> None:
        IRBuilder.current().parser.frames.append(BlockFrame(name))

    return IRBuilderFrame(enter, lambda body: IRBuilder.current().parser.close_block(spec, body, None))


def init() -> IRBuilderFrame:
    """`with T.init():`."""

    def leave(body: Stmt) -> None:
        IRBuilder.current().parser.frames[-1].init = body

    return IRBuilderFrame(lambda: None, leave)


def _tell(name: str, *args: Any) -> None:
    IRBuilder.current().parser.directive(Directive(name, args), None)


def where(predicate: Any) -> None:
    """The condition under which the block runs."""
    _tell("where", predicate)


def reads(*slices: Any) -> None:
    """The regions that the block reads."""
    _tell("reads", *slices)


def writes(*slices: Any) -> None:
    """The regions that the block writes."""
    _tell("writes", *slices)


def block_attr(attrs: Mapping[str, Any]) -> None:
    """Annotations of the block."""
    _tell("block_attr", attrs)


class _Axis:
    """`T.axis`: the iterators of a block."""

    @staticmethod
    def _one(spec: AxisSpec) -> Var:
        return IRBuilder.current().parser.axis("v", spec, None)

    def spatial(self, dom: Any, binding: Any, dtype: str = "int32") -> Var:
        return self._one(_script.axis.spatial(dom, binding, dtype))

    def reduce(self, dom: Any, binding: Any, dtype: str = "int32") -> Var:
        return self._one(_script.axis.reduce(dom, binding, dtype))

    def scan(self, dom: Any, binding: Any, dtype: str = "int32") -> Var:
        return self._one(_script.axis.scan(dom, binding, dtype))

    def opaque(self, dom: Any, binding: Any, dtype: str = "int32") -> Var:
        return self._one(_script.axis.opaque(dom, binding, dtype))

    def remap(self, kinds: str, bindings: Sequence[Any], dtype: str = "int32") -> Any:
        spec = _script.axis.remap(kinds, bindings, dtype)
        made = [self._one(a) for a in IRBuilder.current().parser.remapped(spec, None)]
        return made[0] if len(made) == 1 else made

    S, R = spatial, reduce


axis = _Axis()


# -------------------------------------------------------------------------------- loops
def _loop(spec: LoopSpec) -> IRBuilderFrame:
    loop_vars: list[Var] = []

    def enter() -> Any:
        loop_vars.extend(IRBuilder.current().parser.open_loops(spec, ["v"] * len(spec.bounds)))
        return loop_vars[0] if len(loop_vars) == 1 else list(loop_vars)

    return IRBuilderFrame(
        enter, lambda body: IRBuilder.current().parser.close_loops(spec, loop_vars, body, None)
    )


def serial(start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None) -> IRBuilderFrame:
    """`with T.serial(8) as i:`."""
    return _loop(_script.serial(start, stop, annotations=annotations))


def parallel(start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None) -> IRBuilderFrame:
    """A loop whose iterations run in parallel."""
    return _loop(_script.parallel(start, stop, annotations=annotations))


def vectorized(
    start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> IRBuilderFrame:
    """A loop that becomes vector operations."""
    return _loop(_script.vectorized(start, stop, annotations=annotations))


def unroll(start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None) -> IRBuilderFrame:
    """A loop that is unrolled."""
    return _loop(_script.unroll(start, stop, annotations=annotations))


def thread_binding(
    start: Any, stop: Any = None, thread: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> IRBuilderFrame:
    """A loop bound to a thread axis."""
    return _loop(_script.thread_binding(start, stop, thread, annotations=annotations))


def grid(*extents: Any) -> IRBuilderFrame:
    """`with T.grid(8, 8) as (i, j):`."""
    return _loop(_script.grid(*extents))


def While(condition: Any) -> IRBuilderFrame:
    """A loop that runs as long as the condition holds."""
    return IRBuilderFrame(lambda: None, lambda body: _While(convert(condition), body))


# -------------------------------------------------------------------------------- branches
class _If(IRBuilderFrame):
    """`with T.If(condition):`, which holds a `T.Then()` and perhaps a `T.Else()`."""

    def __init__(self, condition: Any) -> None:
        self.condition = convert(condition)
        self.branches: dict[str, Stmt] = {}
        super().__init__(lambda: _open_ifs.append(self), lambda body: self._end())

    def _end(self) -> IfThenElse:
        _open_ifs.remove(self)
        if "Then" not in self.branches:
            raise ValueError("T.If has no `with T.Then():` in it")
        return IfThenElse(self.condition, self.branches["Then"], self.branches.get("Else"))


_open_ifs: list[_If] = []


def If(condition: Any) -> IRBuilderFrame:
    """`with T.If(condition):`."""
    return _If(condition)


def _branch(name: str) -> IRBuilderFrame:
    def leave(body: Stmt) -> None:
        if not _open_ifs or name in _open_ifs[-1].branches:
            raise ValueError(f"T.{name} stands once in a `with T.If(…):`")
        _open_ifs[-1].branches[name] = body

    return IRBuilderFrame(lambda: None, leave)


def Then() -> IRBuilderFrame:
    """What runs if the condition holds."""
    return _branch("Then")


def Else() -> IRBuilderFrame:
    """What runs otherwise."""
    return _branch("Else")


# -------------------------------------------------------------------------------- definitions
def _opener(spec: Any, name: str | None = "v") -> IRBuilderFrame:
    """The frame of a definition that holds for the statements inside."""
    wraps: list[Any] = []

    def enter() -> Any:
        parser = IRBuilder.current().parser
        parser.scopes.append({})
        wraps.append(parser.opener(spec, name, None))
        return parser.scopes.pop().get(name) if name is not None else None

    return IRBuilderFrame(enter, lambda body: wraps.pop()(body))


def allocate(*args: Any, **kwargs: Any) -> IRBuilderFrame:
    """`with T.allocate([8], "float32", "local") as data:`."""
    return _opener(_script.allocate(*args, **kwargs))


def allocate_const(*args: Any, **kwargs: Any) -> IRBuilderFrame:
    """Constant memory."""
    return _opener(_script.allocate_const(*args, **kwargs))


def decl_buffer(*args: Any, **kwargs: Any) -> IRBuilderFrame:
    """`with T.decl_buffer((8,), "float32", data=data) as A:`; without data, over memory of its own."""
    return _opener(_script.decl_buffer(*args, **kwargs), "buffer")


def LetStmt(value: Any, type_annotation: Any = None, *, var: Any = None) -> IRBuilderFrame:
    """`with T.LetStmt(value) as x:`."""
    return _opener(_script.LetStmt(value, type_annotation, var=var))


def Assert(condition: Any, message: Any) -> IRBuilderFrame:
    """`with T.Assert(condition, message):`."""
    return _opener(_script.Assert(condition, message), None)


def attr(node: Any, attr_key: str, value: Any) -> IRBuilderFrame:
    """`with T.attr(node, key, value):`."""
    return _opener(_script.attr(node, attr_key, value), None)


def realize(buffer_slice: Any, storage_scope: str, condition: Any = True) -> IRBuilderFrame:
    """`with T.realize(A[0:8], "local"):`."""
    return _opener(_script.realize(buffer_slice, storage_scope, condition), None)


def env_thread(thread_tag: str, dtype: str = "int32") -> IterVar:
    """A thread axis to be launched later."""
    return IterVar(None, Var("v", dtype), IterVar.ThreadIndex, thread_tag)


def launch_thread(thread: Any, extent: Any) -> IRBuilderFrame:
    """`with T.launch_thread("threadIdx.x", 128) as tx:`."""
    return _opener(_script.launch_thread(thread, extent))


# -------------------------------------------------------------------------------- statements
def evaluate(value: Any) -> None:
    """Evaluate an expression for its effect."""
    IRBuilder.current().add(Evaluate(convert(value)))


def buffer_store(buffer: _Buffer, value: Any, indices: Any, predicate: Any = None) -> None:
    """`buffer[indices] = value`."""
    IRBuilder.current().add(_script.buffer_store(buffer, value, indices, predicate))


def prefetch(buffer: _Buffer, bounds: Any) -> None:
    """Prefetch a region of a buffer."""
    IRBuilder.current().add(_script.prefetch(buffer, bounds))


class MetaVar:
    """A Python value as it is; of a sequence, its parts."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> Any:
        return map(MetaVar, self.value)


def meta_var(value: Any) -> MetaVar:
    """A Python value to be used as it is."""
    return MetaVar(value)
