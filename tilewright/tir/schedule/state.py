"""The program being scheduled, and where everything in it is."""

from __future__ import annotations

from collections.abc import Sequence

from ...arith import Analyzer
from ...ir.expr import Var
from ...ir.function import PrimFunc
from ...ir.module import GlobalVar, IRModule
from ...ir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt

__all__ = ["Index", "ScheduleState"]


class Index:
    """Where the loops and blocks of a function are: loops by their variable, blocks by their key."""

    __slots__ = ("blocks", "loops", "order", "parents")

    def __init__(self, func: PrimFunc) -> None:
        self.parents: dict[Stmt, Stmt | None] = {}
        self.loops: dict[Var, For] = {}
        self.blocks: dict[object, BlockRealize] = {}
        self.order: list[BlockRealize] = []  # blocks as they stand in the program
        stack: list[tuple[Stmt, Stmt | None]] = [(func.body, None)]
        while stack:
            n, parent = stack.pop()
            self.parents[n] = parent
            if isinstance(n, For):
                self.loops[n.loop_var] = n
            elif isinstance(n, BlockRealize):
                self.blocks[n.block.key] = n
                self.order.append(n)
            stack.extend([(child, n) for child in reversed(_inside(n))])

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

    @property
    def func(self) -> PrimFunc:
        func = self.mod[self.working_on]
        assert isinstance(func, PrimFunc)
        return func

    @property
    def index(self) -> Index:
        """Where everything is in the present program."""
        if self._index is None or self._indexed is not self.func:
            self._indexed = self.func
            self._index = Index(self._indexed)
        return self._index

    def replace(self, old: Stmt, new: Stmt) -> None:
        """Put `new` in the place of `old`."""
        index = self.index
        while True:
            parent = index.parents[old]
            if parent is None:
                break
            new = _with_child(parent, old, new)
            old = parent
        self.replace_func(self.func.replace(body=new))

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
                for iv in up.iter_vars:
                    ana.bind_loop(iv.var, iv.dom.min, iv.dom.extent)
        return ana


def _with_child(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return parent.map_children(lambda child: new if child is old else child)
