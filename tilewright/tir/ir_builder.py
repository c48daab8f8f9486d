"""Loop programs built by Python calls: `ib = tir.ir_builder.create()`, `with ib.for_range(0, n) as i:`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..ir import ops
from ..ir.buffer import Buffer, decl_buffer
from ..ir.dtype import DataType
from ..ir.expr import BufferLoad, PrimExpr, Ramp, StringImm, Var, const, convert
from ..ir.printer_ranges import difference
from ..ir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    seq,
)
from ..ir.types import PointerType, PrimType

_KINDS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorize": ForKind.VECTORIZED,
    "vectorized": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
    "unrolled": ForKind.UNROLLED,
}


class WithScope:
    """The context manager of a builder's scope: it returns a value, and calls a function at its end."""

    def __init__(self, value: Any, close: Callable[[], None]) -> None:
        self._value, self._close = value, close

    def __enter__(self) -> Any:
        return self._value

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if kind is None:
            self._close()


class BufferVar:
    """A buffer in a builder: `b[i]` is a load, `b[i] = v` emits a store.

    With a vector as its content type, index i stands for the i-th whole vector.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer, content_type: str) -> None:
        self._builder, self._buffer, self._content_type = builder, buffer, DataType(content_type)

    def asobject(self) -> Buffer:
        """The buffer itself."""
        return self._buffer

    def __prim_expr__(self) -> Var:
        return self._buffer.data

    @property
    def dtype(self) -> DataType:
        return self._content_type

    def _indices(self, index: Any) -> tuple[PrimExpr, ...]:
        items = [convert(i) for i in (index if isinstance(index, (tuple, list)) else (index,))]
        if len(items) != len(self._buffer.shape):
            raise ValueError(
                f"buffer {self._buffer.name} has {len(self._buffer.shape)} dimensions "
                f"and was indexed with {len(items)}"
            )
        lanes = self._content_type.lanes // self._buffer.dtype.lanes
        if lanes > 1:
            last = items[-1]
            items[-1] = Ramp(ops.mul(last, const(lanes, last.dtype)), const(1, last.dtype), lanes)
        return tuple(items)

    def __getitem__(self, index: Any) -> PrimExpr:
        return BufferLoad(self._buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        place = BufferLoad(self._buffer, self._indices(index))
        held = const(value, place.dtype) if isinstance(value, (bool, int, float)) else convert(value)
        if held.dtype.lanes == 1 and place.dtype.lanes > 1:
            held = ops.cast(place.dtype, held)
        if held.dtype is not place.dtype:
            raise ValueError(
                f"a value of type {held.dtype} is stored into {self._buffer.name}, "
                f"which holds {place.dtype}: `{held}`; cast it with .astype"
            )
        self._builder.emit(BufferStore(self._buffer, held, place.indices))


class IRBuilder:
    """Collects statements. Scopes nest by `with`; `get` gives the whole."""

    def __init__(self) -> None:
        self._stack: list[list[Any]] = [[]]
        self._loops = 0

    # -- statements --------------------------------------------------------------------------
    def emit(self, stmt: Any) -> None:
        """Add a statement, an expression for its effect, or a function that wraps what follows."""
        if isinstance(stmt, PrimExpr):
            stmt = Evaluate(stmt)
        if not isinstance(stmt, Stmt) and not callable(stmt):
            raise TypeError(f"emit takes a statement or an expression, not {type(stmt).__name__}")
        self._stack[-1].append(stmt)

    def _pop(self) -> Stmt:
        out: list[Any] = []
        for s in reversed(self._stack.pop()):
            if isinstance(s, Stmt):
                out.append(s)
            else:
                out = [s(seq(*reversed(out)))]
        return seq(*reversed(out))

    def _open(self, value: Any, make: Callable[[Stmt], Any]) -> WithScope:
        """A scope whose statements `make` turns into one."""
        self._stack.append([])
        return WithScope(value, lambda: self.emit(make(self._pop())))

    # -- scopes ------------------------------------------------------------------------------
    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """An attribute of the statements that follow in this scope."""
        held_node = StringImm(node) if isinstance(node, str) else node
        held = StringImm(value) if isinstance(value, str) else convert(value)
        self.emit(lambda body: AttrStmt(held_node, attr_key, held, body))

    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> WithScope:
        """A loop from `begin` to before `end`; the scope gives its variable."""
        if kind not in _KINDS:
            raise ValueError(f"unknown kind of loop {kind!r}; known are serial, parallel, vectorize, unroll")
        if name == "i":
            name = "ijk"[self._loops] if self._loops < 3 else f"i_{self._loops - 3}"
        self._loops += 1
        low, high = ops.match(begin, end)
        if dtype is not None:
            low, high = ops.cast(dtype, low), ops.cast(dtype, high)
        loop_var = Var(name, low.dtype)
        extent = difference(high, low)

        def close(body: Stmt) -> Stmt:
            self._loops -= 1
            return For(loop_var, low, extent, _KINDS[kind], body)

        return self._open(loop_var, close)

    def while_loop(self, condition: Any) -> WithScope:
        """A loop that runs as long as the condition holds."""
        return self._open(None, lambda body: While(convert(condition), body))

    def if_scope(self, cond: Any) -> WithScope:
        """The statements to run if the condition holds."""
        return self._open(None, lambda body: IfThenElse(convert(cond), body))

    def else_scope(self) -> WithScope:
        """The statements to run otherwise; must follow an `if_scope`."""
        before = self._stack[-1][-1] if self._stack[-1] else None
        if not isinstance(before, IfThenElse) or before.else_case is not None:
            raise RuntimeError("else_scope can only follow an if_scope")
        self._stack[-1].pop()
        return self._open(None, lambda body: IfThenElse(before.condition, before.then_case, body))

    def new_scope(self) -> WithScope:
        """A scope of its own, for attributes and allocations that end with it."""
        return self._open(None, lambda body: body)

    # -- names and memory --------------------------------------------------------------------
    def let(self, var_name: str, value: Any) -> Var:
        """A variable bound to a value in the statements that follow."""
        held = convert(value)
        made = Var(var_name, held.dtype)
        self.emit(lambda body: LetStmt(made, held, body))
        return made

    def allocate(
        self, dtype: str, shape: Any, name: str = "buf", axis_separators: Any = None, scope: str = ""
    ) -> BufferVar:
        """Memory for the statements that follow in this scope."""
        data = Var(name, PointerType(PrimType(dtype), scope or "global"))
        sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        made = decl_buffer(sizes, dtype, name, data=data, scope=scope, axis_separators=axis_separators)
        self.emit(lambda body: Allocate(data, made.dtype, made.shape, const(True, "bool"), body))
        return BufferVar(self, made, dtype)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """A pointer to memory that is allocated elsewhere."""
        data = Var(name, PointerType(PrimType(content_type), scope or "global"))
        return BufferVar(self, decl_buffer((1,), content_type, name, data=data), content_type)

    def buffer_ptr(self, buf: Buffer, shape: Any = None) -> BufferVar:
        """A buffer, to be indexed; with `shape`, its memory in another shape."""
        if shape is not None:
            buf = decl_buffer(tuple(shape), buf.dtype, buf.name, data=buf.data)
        return BufferVar(self, buf, buf.dtype)

    def likely(self, expr: Any) -> PrimExpr:
        """A condition that mostly holds."""
        return ops.likely(expr)

    def get(self) -> Stmt:
        """The statement that was built."""
        if len(self._stack) != 1:
            raise RuntimeError("get is called inside a scope that is still open")
        made = self._pop()
        self._stack.append([])
        return made


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
