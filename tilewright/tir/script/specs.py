"""Descriptions that the names of `T` return for parts of a program that are not values.

`T.grid(8, 8)` or `T.alloc_buffer((8,))` know neither the names they will be bound to nor the body that
follows. They return one of these, and the parser, which knows both, builds the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...ir import PointerType, PrimExpr, PrimType
from ...ir.buffer import Buffer, BufferRegion, decl_buffer
from ...ir.dtype import INT32, DataType
from ...ir.expr import IntImm, SizeVar, Var, convert
from ...ir.stmt import ForKind

LONGEST = 1_000_000  # iterations of a loop that runs while a script is read


def fresh_var(dtype: str, is_size_var: bool = False) -> Var:
    """A variable that gets its name from its assignment."""
    return (SizeVar if is_size_var else Var)("", dtype)


@dataclass(slots=True)
class LoopSpec:
    """One loop, or a grid of them: bounds as (start, stop) pairs."""

    kind: ForKind
    bounds: list[tuple[Any, Any]]
    annotations: dict[str, Any] = field(default_factory=dict)
    thread: str | None = None

    def __iter__(self) -> Iterator[int]:
        """As Python's range, for comprehensions that are evaluated while parsing."""
        start, stop = (convert(b) for b in self.bounds[0])
        if len(self.bounds) != 1 or not isinstance(start, IntImm) or not isinstance(stop, IntImm):
            raise TypeError("only a loop with constant bounds can be run while parsing")
        if stop.value - start.value > LONGEST:
            raise ValueError(f"a loop of more than {LONGEST:,} iterations cannot be run while parsing")
        return iter(range(start.value, stop.value))


@dataclass(slots=True)
class BufferSpec:
    """A buffer that has no name yet."""

    shape: Any
    dtype: str = "float32"
    data: Any = None
    strides: Any = None
    elem_offset: Any = None
    scope: str = "global"
    align: int = -1
    offset_factor: int = 0
    axis_separators: Any = None

    @classmethod
    def of(cls, b: Buffer) -> BufferSpec:
        """The description of another buffer like `b`, which has its own memory."""
        offset = None if isinstance(b.elem_offset, Var) else b.elem_offset
        align, factor = b.data_alignment, b.offset_factor
        return cls(
            b.shape,
            b.dtype,
            None,
            b.strides or None,
            offset,
            b.scope(),
            align,
            factor,
            b.axis_separators or None,
        )

    def build(self, name: str, symbols: dict[str, Var] | None = None) -> Buffer:
        """The buffer, called `name`. Sizes given as text are variables, the same for the same text."""
        table: dict[str, Var] = {} if symbols is None else symbols
        dims = self.shape if isinstance(self.shape, (tuple, list)) else (self.shape,)
        shape = [self._size(d, table) for d in dims]
        strides = None if self.strides is None else [self._size(s, table) for s in self.strides]
        offset = self.elem_offset
        if isinstance(offset, str):
            offset = self._size(offset, table)
        elif isinstance(offset, int):
            offset = IntImm(shape[0].dtype if shape else INT32, offset)
        elif isinstance(offset, Var) and not offset.name:
            offset = offset.__class__(f"{name}_elem_offset", offset.dtype)
        return decl_buffer(
            tuple(shape),
            self.dtype,
            name,
            data=self._data(name),
            strides=strides,
            elem_offset=offset,
            scope="" if self.data is not None else self.scope,
            data_alignment=self.align,
            offset_factor=self.offset_factor,
            axis_separators=self.axis_separators,
        )

    def _data(self, name: str) -> Var | None:
        data = self.data
        if data is None:
            return None
        data = convert(data)
        if not isinstance(data, Var):
            raise TypeError(f"the data of buffer {name} must be a pointer variable, not `{data}`")
        return data

    @staticmethod
    def _size(value: Any, table: dict[str, Var]) -> PrimExpr:
        if isinstance(value, str):
            return table.setdefault(value, Var(value, INT32))
        return convert(value)


@dataclass(slots=True)
class AllocBuffer:
    """`A = T.alloc_buffer(…)`: a buffer of the block around it."""

    spec: BufferSpec


@dataclass(slots=True)
class MatchSpec:
    """`A = T.match_buffer(param, …)` or, in a block, of a region."""

    source: Any
    spec: BufferSpec


@dataclass(slots=True)
class DeclSpec:
    """`A = T.decl_buffer(…)`: from here on a view of memory; or `buffer`, which is known already."""

    spec: BufferSpec | None
    buffer: Buffer | None = None


@dataclass(slots=True)
class AllocateSpec:
    """`p = T.allocate(…)`: memory to the end of the suite, or constant data."""

    extents: Any
    dtype: DataType
    scope: str = "global"
    condition: Any = True
    annotations: dict[str, Any] = field(default_factory=dict)
    data: Any = None

    def pointer(self) -> PointerType:
        return PointerType(PrimType(self.dtype), self.scope)


@dataclass(slots=True)
class AxisSpec:
    """`v = T.axis.spatial(dom, value)`."""

    dom: Any
    value: Any
    iter_type: int


@dataclass(slots=True)
class RemapSpec:
    """`vi, vj = T.axis.remap("SR", [i, j])`."""

    kinds: str
    values: list[Any]


@dataclass(slots=True)
class BlockSpec:
    name: str
    no_realize: bool = False


@dataclass(slots=True)
class InitSpec:
    """`with T.init():`."""


@dataclass(slots=True)
class AttrSpec:
    node: Any
    key: str
    value: Any


@dataclass(slots=True)
class EnvThread:
    """`tx = T.env_thread("threadIdx.x")`."""

    tag: str
    dtype: str = "int32"


@dataclass(slots=True)
class LaunchSpec:
    """`tx = T.launch_thread("threadIdx.x", 128)`, or of a thread that is known already."""

    thread: Any
    extent: Any


@dataclass(slots=True)
class LetSpec:
    """`with T.LetStmt(value) as x:`."""

    value: Any
    annotation: Any = None
    var: Any = None


@dataclass(slots=True)
class AssertSpec:
    condition: Any
    message: Any


@dataclass(slots=True)
class RealizeSpec:
    region: BufferRegion
    scope: str
    condition: Any = True


@dataclass(slots=True)
class Directive:
    """A fact about the block or function around it: reads, writes, where, block_attr, func_attr."""

    name: str
    args: tuple[Any, ...]


@dataclass(slots=True)
class MetaVar:
    """A Python value that an assignment binds as it is."""

    value: Any
