"""Statements. Each docstring is the meaning of the node."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, ClassVar, Final

from .buffer import Buffer, BufferRegion, MatchBufferRegion
from .dtype import DataType
from .errors import OperandTypeError
from .expr import Def, IterVar, PrimExpr, Range, Var, _check_indices, _checked_predicate, const, convert
from .node import Node, node, register_converter
from .ops import cast

__all__ = [
    "Allocate",
    "AllocateConst",
    "AssertStmt",
    "AttrStmt",
    "Block",
    "BlockRealize",
    "BufferRealize",
    "BufferStore",
    "DeclBuffer",
    "Evaluate",
    "For",
    "ForKind",
    "IfThenElse",
    "LetStmt",
    "Prefetch",
    "SeqStmt",
    "Stmt",
    "While",
    "seq",
    "stmt_list",
]


class Stmt(Node):
    """A statement."""

    __slots__ = ()

    def __repr__(self) -> str:
        from .printer import script

        return script(self)


def _to_stmt(value: Any) -> Stmt:
    if isinstance(value, Stmt):
        return value
    if isinstance(value, PrimExpr):
        return Evaluate(value)
    if isinstance(value, (list, tuple)):
        return seq(*value)
    raise OperandTypeError(f"cannot use {value!r} ({type(value).__name__}) as a statement")


def _to_stmts(values: Iterable[Any]) -> tuple[Stmt, ...]:
    found = tuple(values)
    if all(issubclass(kind, Stmt) for kind in set(map(type, found))):
        return found
    return tuple(map(_to_stmt, found))


register_converter("_stmt", Stmt)
register_converter("_to_stmt", _to_stmt)
register_converter("_to_stmts", _to_stmts)


class ForKind(IntEnum):
    """The execution kind of a loop."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


@node
class LetStmt(Stmt):
    """`body` with `var` standing for `value`."""

    var: Def[Var]
    value: PrimExpr
    body: Stmt
    _tail: ClassVar[str] = (
        "if self.var.dtype is not self.value.dtype: _check_same(self.var, self.value, 'LetStmt')"
    )


@node
class AssertStmt(Stmt):
    """If `condition` does not hold, the function returns with the error `message`; else `body`."""

    condition: PrimExpr
    message: PrimExpr
    body: Stmt


@node
class For(Stmt):
    """`body` for each `loop_var` from `min` on, `extent` times, executed as `kind` says.

    A THREAD_BINDING loop carries an IterVar whose `thread_tag` names the hardware axis.
    """

    loop_var: Def[Var]
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: dict[str, Any] = {}

    def __init__(
        self,
        loop_var: Var,
        min: Any,
        extent: Any,
        kind: ForKind,
        body: Any,
        thread_binding: IterVar | None = None,
        annotations: dict[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        low, size = convert(min), convert(extent)
        kind_of_var = loop_var.dtype
        self.loop_var = loop_var
        self.min = low if low.dtype is kind_of_var else cast(kind_of_var, low)
        self.extent = size if size.dtype is kind_of_var else cast(kind_of_var, size)
        self.kind = kind if kind.__class__ is ForKind else ForKind(kind)
        self.body = body if isinstance(body, Stmt) else _to_stmt(body)
        self.thread_binding = thread_binding
        self.annotations = annotations or {}
        self.span = span

    @property
    def dom(self) -> Range:
        """The values of the loop variable."""
        return Range.from_min_extent(self.min, self.extent)


@node
class While(Stmt):
    """`body` as long as `condition` holds before it."""

    condition: PrimExpr
    body: Stmt


@node
class BufferStore(Stmt):
    """The element of `buffer` at `indices` becomes `value`; only the lanes where `predicate` holds."""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None

    def __init__(
        self, buffer: Buffer, value: Any, indices: Any, predicate: Any = None, span: Any = None
    ) -> None:
        items = indices if isinstance(indices, (tuple, list)) else (indices,)
        self.indices = tuple([convert(i) for i in items])
        if len(self.indices) != len(buffer.shape):
            _check_indices(buffer, self.indices)
        if not isinstance(value, PrimExpr):
            value = const(value, buffer.dtype) if isinstance(value, (int, float)) else convert(value)
        lanes = self.indices[-1].dtype.lanes if self.indices else 1
        expected = buffer.dtype.with_lanes(lanes * buffer.dtype.lanes)
        if value.dtype is not expected:
            raise OperandTypeError(
                f"storing a value of type {value.dtype} into {buffer.name}, which takes {expected}: `{value}`"
            )
        if predicate is not None:
            predicate = _checked_predicate(buffer, convert(predicate), expected, True)
        self.buffer, self.value, self.predicate, self.span = buffer, value, predicate, span


@node
class BufferRealize(Stmt):
    """`buffer` exists, at least in `bounds`, while `body` runs."""

    buffer: Buffer
    bounds: tuple[Range, ...]
    condition: PrimExpr
    body: Stmt


# Of an allocation: as many elements behind its end may be loaded in lanes whose predicate does not hold.
SLACK: Final = "slack"


@node
class Allocate(Stmt):
    """`buffer_var` points to memory for `extents` elements of `dtype` while `body` runs."""

    buffer_var: Def[Var]
    dtype: DataType
    extents: tuple[PrimExpr, ...]
    condition: PrimExpr
    body: Stmt
    annotations: dict[str, Any] = {}
    _tail: ClassVar[str] = "if annotations is None: self.annotations = {}"


@node
class AllocateConst(Stmt):
    """`buffer_var` points to the constant array `data` while `body` runs."""

    buffer_var: Def[Var]
    dtype: DataType
    extents: tuple[PrimExpr, ...]
    data: Any
    body: Stmt
    annotations: dict[str, Any] = {}
    _tail: ClassVar[str] = "if annotations is None: self.annotations = {}"


@node
class DeclBuffer(Stmt):
    """In `body`, `buffer` is a view of the memory of its pointer."""

    buffer: Buffer
    body: Stmt


@node
class AttrStmt(Stmt):
    """`body` with the attribute `attr_key` of `node` set to `value`."""

    node: Any
    attr_key: str
    value: PrimExpr
    body: Stmt


@node
class SeqStmt(Stmt):
    """A sequence of statements. Nested sequences are flattened, so the form is unique."""

    seq: tuple[Stmt, ...]

    def __init__(self, seq: Iterable[Any], span: Any = None) -> None:
        parts = _to_stmts(seq)
        if SeqStmt in set(map(type, parts)):
            parts = tuple(x for s in parts for x in (s.seq if isinstance(s, SeqStmt) else (s,)))
        self.seq, self.span = parts, span

    def __len__(self) -> int:
        return len(self.seq)

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]

    @property
    def size(self) -> int:
        return len(self.seq)


@node
class IfThenElse(Stmt):
    """`then_case` if `condition` holds, else `else_case`."""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@node
class Evaluate(Stmt):
    """`value`, for its effect."""

    value: PrimExpr


@node
class Prefetch(Stmt):
    """A prefetch of the region of `buffer`."""

    buffer: Buffer
    bounds: tuple[Range, ...]


@node
class Block(Stmt):
    """A unit of computation over iterators, isolated from the loops around it.

    For each point of its iterators it reads `reads`, writes `writes` and nothing else. `init` runs
    where all reduction iterators are at their start. `key` names the block through rewrites: it is
    carried along by `replace` and takes no part in equality.
    """

    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: dict[str, Any] = {}
    key: object = None

    def __init__(
        self,
        iter_vars: Iterable[IterVar],
        reads: Iterable[BufferRegion],
        writes: Iterable[BufferRegion],
        name_hint: str,
        body: Any,
        init: Any = None,
        alloc_buffers: Iterable[Buffer] | None = None,
        match_buffers: Iterable[MatchBufferRegion] | None = None,
        annotations: dict[str, Any] | None = None,
        key: object = None,
        span: Any = None,
    ) -> None:
        self.iter_vars, self.reads, self.writes = tuple(iter_vars), tuple(reads), tuple(writes)
        self.name_hint, self.body = name_hint, _to_stmt(body)
        self.init = None if init is None else _to_stmt(init)
        self.alloc_buffers, self.match_buffers = tuple(alloc_buffers or ()), tuple(match_buffers or ())
        self.annotations, self.span = annotations or {}, span
        self.key = object() if key is None else key


@node
class BlockRealize(Stmt):
    """`block` with its iterators at `iter_values`, if `predicate` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block

    def __init__(self, iter_values: Any, predicate: Any, block: Block, span: Any = None) -> None:
        self.iter_values = tuple([convert(v) for v in iter_values])
        if not isinstance(predicate, PrimExpr):
            predicate = const(bool(predicate), "bool")
        self.predicate, self.block, self.span = predicate, block, span

    @property
    def bindings(self) -> list[tuple[IterVar, PrimExpr]]:
        """The iterators of the block with their values."""
        return list(zip(self.block.iter_vars, self.iter_values, strict=True))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, or the one that it is."""
    return list(stmt.seq) if stmt.__class__ is SeqStmt else [stmt]


def seq(*stmts: Any) -> Stmt:
    """A flat sequence without no-ops; the statement itself if there is only one."""
    out: list[Stmt] = []
    for item in stmts:
        if item is None:
            continue
        one = _to_stmt(item) if not isinstance(item, (list, tuple)) else seq(*item)
        for s in stmt_list(one):
            if s.__class__ is Evaluate and s.value.__class__.__name__ == "IntImm":
                continue
            out.append(s)
    if not out:
        return Evaluate(const(0))
    return out[0] if len(out) == 1 else SeqStmt(tuple(out))
