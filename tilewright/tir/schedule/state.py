"""The program being scheduled, and where everything in it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.expr import Var
from ...ir.function import PrimFunc
from ...ir.module import GlobalVar, IRModule
from ...ir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt

_MANY = 256  # statements: in fewer it is as fast to look at all of them again


class ScheduleDebugMask(IntEnum):
    """What a classic schedule verifies after each step. Here every step is checked before it is taken."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


_Tables = tuple[dict[object, tuple[BlockRealize, ...]], ...]


class Index:
    """An index of the loops and blocks of a function: loops by their variable, blocks by their key.

    The index of a large program goes with it from step to step (`put`). `order` is a new list after each.
    """

    __slots__ = ("blocks", "count", "loops", "order", "parents", "tables")

    def __init__(self, func: PrimFunc) -> None:
        self.parents: dict[Stmt, Stmt | None] = {}
        self.loops: dict[Var, For] = {}
        self.blocks: dict[object, BlockRealize] = {}
        self.order: list[BlockRealize] = []  # blocks as they stand in the program
        self.tables: _Tables | None = None  # who reads a buffer, writes it, has a name, once somebody asks
        self.count = self._add(func.body, None)

    def _add(self, n: Stmt, parent: Stmt | None) -> tuple[int, int]:
        """Note a statement with all that is in it; how many statements and how many loops that are."""
        stack: list[tuple[Stmt, Stmt | None]] = [(n, parent)]
        count, loops = 0, 0
        while stack:
            n, parent = stack.pop()
            self.parents[n] = parent
            count += 1
            if isinstance(n, For):
                self.loops[n.loop_var] = n
                loops += 1
            elif isinstance(n, BlockRealize):
                self.blocks[n.block.key] = n
                self.order.append(n)
            stack.extend([(child, n) for child in reversed(_inside(n))])
        return count, loops

    def _drop(self, n: Stmt) -> list[BlockRealize]:
        """Forget a statement with all that is in it, and say which blocks that were."""
        gone, stack = [], [n]
        while stack:
            n = stack.pop()
            del self.parents[n]
            if isinstance(n, For):
                del self.loops[n.loop_var]
            elif isinstance(n, BlockRealize):
                del self.blocks[n.block.key]
                gone.append(n)
            stack.extend(reversed(_inside(n)))
        return gone

    @property
    def _single(self) -> bool:
        """Whether no statement, loop or block stands at two places."""
        return self.count == (len(self.parents), len(self.loops)) and len(self.order) == len(self.blocks)

    def put(self, old: Stmt, new: Stmt | None, above: Sequence[tuple[Stmt, Stmt]]) -> bool:
        """Become the index of the program with `new` in the place of `old`, or without it, and without a walk over all
        of it; False where that is no less work, or cannot be told, and the index is then of no program. `above` are the
        statements around, innermost first: as they were, as they are.
        """
        if len(self.parents) < _MANY or not above or not self._single:
            return False
        order, self.order = self.order, []
        gone = self._drop(old)
        left, left_loops = len(self.parents), len(self.loops)
        count, loops = (0, 0) if new is None else self._add(new, above[0][1])
        if self.order and not gone:
            return False  # nothing tells where the first of them stands
        come = self.order
        self.order = _spliced(order, gone, come)
        self.count = left + count, left_loops + loops
        if not self._single:
            return False
        for (was, now), outer in zip(above, [*(now for _, now in above[1:]), None], strict=True):
            del self.parents[was]
            self.parents[now] = outer
            self.parents.update(dict.fromkeys(_inside(now), now))
            if isinstance(now, For):
                self.loops[now.loop_var] = now
            elif isinstance(now, BlockRealize):
                self.blocks[now.block.key] = now
                self.order[self.order.index(was)] = now  # type: ignore[arg-type]
                gone.append(was)  # type: ignore[arg-type]
                come.append(now)
        if isinstance(new, SeqStmt) and isinstance(above[0][1], SeqStmt):  # it has become a part of that
            del self.parents[new]
            self.count = self.count[0] - 1, self.count[1]
        if self.tables is not None:
            _change(self.tables, gone, come)
        return True

    def readers(self, buffers: Iterable[Buffer]) -> list[BlockRealize]:
        """The blocks that read some of the buffers, in order."""
        return self._found(0, buffers)

    def writers(self, buffers: Iterable[Buffer]) -> list[BlockRealize]:
        """The blocks that write some of the buffers, in order."""
        return self._found(1, buffers)

    def named(self, name: str) -> list[BlockRealize]:
        """The blocks of that name, in order."""
        return self._found(2, [name])

    def _found(self, table: int, keys: Iterable[object]) -> list[BlockRealize]:
        if self.tables is None:
            self.tables = ({}, {}, {})
            _change(self.tables, (), self.order)
        held = self.tables[table]
        found = list(dict.fromkeys(r for k in keys for r in held.get(k, ())))
        if len(found) < 2:
            return found
        at = {r: i for i, r in enumerate(self.order)} if len(found) > 8 else None
        return sorted(found, key=self.order.index if at is None else at.__getitem__)

    def scope(self, n: Stmt) -> Block | None:
        """The block around a statement."""
        up = self.parents[n]
        while up is not None and not isinstance(up, Block):
            up = self.parents[up]
        return up

    def ancestors(self, n: Stmt) -> list[Stmt]:
        """The statements around `n`, innermost first."""
        out = []
        up = self.parents[n]
        while up is not None:
            out.append(up)
            up = self.parents[up]
        return out

    def loops_of(self, realize: BlockRealize) -> list[For]:
        """The loops around a block up to the block that it stands in, outermost first."""
        out = []
        for up in self.ancestors(realize):
            if isinstance(up, Block):
                break
            if isinstance(up, For):
                out.append(up)
        return out[::-1]

    def blocks_under(self, n: Stmt) -> list[BlockRealize]:
        """The outermost blocks inside `n`, in order."""
        return outermost_blocks(n)


def _spliced(
    order: list[BlockRealize], gone: list[BlockRealize], come: list[BlockRealize]
) -> list[BlockRealize]:
    if not gone:
        return order.copy()
    at = order.index(gone[0])
    return [*order[:at], *come, *order[at + len(gone) :]]


def _change(tables: _Tables, gone: Iterable[BlockRealize], come: Iterable[BlockRealize]) -> None:
    """Take some blocks out of the tables of who reads, who writes and who has a name, and others in."""
    for r in gone:
        for table, keys in zip(tables, _keys(r.block), strict=True):
            for key in keys:
                table[key] = tuple(x for x in table[key] if x is not r)
                if not table[key]:
                    del table[key]
    for r in come:
        for table, keys in zip(tables, _keys(r.block), strict=True):
            for key in keys:
                table[key] = (*table.get(key, ()), r)


def _keys(block: Block) -> tuple[set[object], set[object], tuple[str]]:
    return {r.buffer for r in block.reads}, {w.buffer for w in block.writes}, (block.name_hint,)


def outermost_blocks(n: Stmt) -> list[BlockRealize]:
    """The blocks inside a statement that are in no other block inside it, in order."""
    out: list[BlockRealize] = []
    stack = [n]
    while stack:
        m = stack.pop()
        if isinstance(m, BlockRealize):
            out.append(m)
            continue
        stack.extend(reversed(_inside(m)))
    return out


def _inside(n: Stmt) -> Sequence[Stmt]:
    """The statements directly inside another. Schedules ask for all of a program after each step, so that those which
    most programs are made of are told apart before their expressions are looked at."""
    kind = n.__class__
    if kind is For:
        return (n.body,)  # type: ignore[attr-defined]
    if kind is BlockRealize:
        return (n.block,)  # type: ignore[attr-defined]
    if kind is SeqStmt:
        return n.seq  # type: ignore[attr-defined,no-any-return]
    if kind is BufferStore:
        return ()
    return [c for c in n.children() if isinstance(c, Stmt)]


class ScheduleState:
    """A module under scheduling. Programs are immutable, so a step back is a pointer back."""

    def __init__(self, mod: IRModule, name: str) -> None:
        self.mod = mod
        self.working_on: GlobalVar = mod.get_global_var(name)
        self._index: Index | None = None
        self._indexed: PrimFunc | None = None
        self.in_blocks: set[Stmt] = set()  # statements that are known to read memory in their blocks alone

    @property
    def func(self) -> PrimFunc:
        func = self.mod[self.working_on]
        assert isinstance(func, PrimFunc)
        return func

    @property
    def index(self) -> Index:
        """The index of the current program."""
        func = self.func
        if self._index is None or self._indexed is not func:
            self._index, self._indexed = Index(func), func
        return self._index

    def replace(self, old: Stmt, new: Stmt) -> None:
        """Put `new` in the place of `old`."""
        self._replace(old, new, [])

    def remove(self, n: Stmt, buffer: Buffer | None = None) -> None:
        """Remove a statement from a sequence, and a buffer from the allocations of the enclosing block."""
        parent = self.index.parents[n]
        assert isinstance(parent, SeqStmt) and len(parent.seq) > 2
        rest = SeqStmt([part for part in parent.seq if part is not n], span=parent.span)
        self._replace(n, None, [(parent, rest)], buffer)

    def _replace(
        self, old: Stmt, new: Stmt | None, above: list[tuple[Stmt, Stmt]], unused: Buffer | None = None
    ) -> None:
        index = self.index
        was, now = above[-1] if above else (old, new)
        assert now is not None
        while (parent := index.parents[was]) is not None:
            now = _with_child(parent, was, now)
            was = parent
            if unused is not None and isinstance(now, Block):
                now, unused = without_buffer(now, unused), None
            above.append((was, now))
        self.replace_func(self.func.replace(body=now))
        self._indexed = None
        if index.put(old, new, above):
            self._indexed = self.func

    def replace_func(self, func: PrimFunc) -> None:
        """Put another function in the place of the present one."""
        functions = dict(self.mod.functions)
        functions[self.working_on] = func
        self.mod = IRModule(functions, self.mod.type_definitions, self.mod.attrs)

    def analyzer_at(self, n: Stmt) -> Analyzer:
        """An analyzer that knows the loops and iterators around `n`."""
        ana = Analyzer()
        for up in reversed(self.index.ancestors(n)):
            if isinstance(up, For):
                ana.bind_loop(up.loop_var, up.min, up.extent)
            elif isinstance(up, Block):
                ana.bind_ranges({iv.var: iv.dom for iv in up.iter_vars})
        return ana


def without_buffer(block: Block, buffer: Buffer) -> Block:
    """A block that does not allocate a buffer."""
    return block.replace(alloc_buffers=tuple([b for b in block.alloc_buffers if b is not buffer]))


def _with_child(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if isinstance(parent, SeqStmt):  # which may have thousands of parts
        return SeqStmt([new if part is old else part for part in parent.seq], span=parent.span)
    return parent.map_children(lambda child: new if child is old else child)
