"""Whether a piece of a program does what the description of an intrinsic says, and where they part."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import (
    EQ,
    NE,
    Add,
    And,
    BufferLoad,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Or,
    PrimExpr,
    StringImm,
    Sub,
    Var,
    const,
)
from ...ir.functor import Mutator, pre_order, substitute, vars_used
from ...ir.node import Node, field_kinds
from ...ir.ops import add, cast, conjunction, equal, is_one, sub
from ...ir.stmt import BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from .primitive import Refusal

_COUNTS = (Add, Sub, Mul, FloorDiv, FloorMod)
_COLUMN = 60  # width in characters of a body in a side-by-side listing
# Declarations that the printer puts before a statement for names from outside of it.
_HEAD = re.compile(r"$|# from |\w+ = T\.")


class Different(Exception):
    """Two bodies differ: the statements and expressions where they do, and why."""

    def __init__(self, ours: Any, theirs: Any, why: str) -> None:
        super().__init__(why)
        self.ours, self.theirs, self.why = ours, theirs, why
        self.at: tuple[Stmt, Stmt] | None = None
        self.bodies: tuple[Stmt, Stmt] | None = None


class Unlike(Refusal):
    """A body that does not match the description of an intrinsic, listed side by side with it."""

    def __init__(self, different: Different, block: str, intrin: str, here: Stmt, hint: str = "") -> None:
        super().__init__(f"block {block} does not do what {intrin} describes: {different.why}", here, hint)
        self.different, self.titles = different, (f"block {block}", intrin)

    def __str__(self) -> str:
        hint, self.hint = self.hint, ""
        lines = [super().__str__(), "", *self.beside()]
        self.hint = hint
        return "\n".join([*lines, "", f"  hint: {hint}"] if hint else lines)

    def beside(self) -> list[str]:
        """The two bodies in columns, the first difference marked."""
        assert self.different.bodies is not None and self.different.at is not None
        ours, theirs = (
            _lines(body, at) for body, at in zip(self.different.bodies, self.different.at, strict=True)
        )
        rows: list[tuple[list[str], list[str]]] = [
            ([self.titles[0]], [self.titles[1]]),
            *itertools.zip_longest(ours, theirs, fillvalue=[]),
        ]
        width = max(len(text) for left, _ in rows for text in left)
        out = []
        for left, right in rows:
            for a, b in itertools.zip_longest(left, right, fillvalue=""):
                out.append(f"  | {a:<{width}} | {b}".rstrip())
        return out


def _lines(body: Stmt, at: Stmt) -> list[list[str]]:
    """The lines of a statement, each wrapped to the width of a column."""
    from ...ir.printer import script_lines

    lines, line = script_lines(body, at)
    if line is not None:
        lines[line] += "    # <-- here"
    out = []
    for text in itertools.dropwhile(_HEAD.match, lines):
        indent = text[: len(text) - len(text.lstrip())]
        out.append(textwrap.wrap(text, _COLUMN, subsequent_indent=f"{indent}    ", break_long_words=False))
    return out


class _Plain(Mutator):
    """Blocks dissolved into what they do: iterators replaced by their values, loops that run once gone.

    An init becomes a condition on the reduction iterators, which is what it means.
    """

    def __init__(self, ana: Analyzer) -> None:
        self.ana = ana

    def visit_For(self, n: For) -> Stmt:
        if is_one(n.extent):
            return self.visit(substitute(n.body, {n.loop_var: n.min}))
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, n.min, n.extent)
            body = self.visit(n.body)
        # In which manner it runs does not matter, unless the threads of a GPU are what runs it.
        if n.kind is ForKind.THREAD_BINDING:
            return n.replace(body=body)
        return For(n.loop_var, n.min, n.extent, ForKind.SERIAL, body)

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        block = n.block
        table = {iv.var: value for iv, value in n.bindings}
        first = conjunction(equal(value, iv.dom.min) for iv, value in n.bindings if iv.is_reduction)
        body = self.visit(substitute(block.body, table))
        if block.init is not None:
            init = self.visit(substitute(block.init, table))
            first = self.ana.simplify(first)
            body = seq(init if is_one(first) else IfThenElse(first, init), body)
        predicate = self.ana.simplify(n.predicate)
        return body if is_one(predicate) else IfThenElse(predicate, body)

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        indices = tuple([self.ana.simplify(i) if i.dtype.lanes == 1 else i for i in made.indices])
        return made.replace(indices=indices)

    visit_BufferLoad = visit_BufferStore = access


class Matched:
    """The correspondence of a description and a body: its loops to loops, its buffers to regions of buffers."""

    def __init__(self, ana: Analyzer) -> None:
        self.ana = ana
        self.vars: dict[Var, PrimExpr] = {}  # theirs -> ours
        self.inner: dict[Var, PrimExpr] = {}  # our loops -> where they start
        self.theirs: dict[Var, PrimExpr] = {}  # their loops -> where they start
        self.regions: dict[Buffer, tuple[Buffer, list[PrimExpr]]] = {}
        self.written: set[Buffer] = set()  # theirs

    # -- statements ------------------------------------------------------------------------
    def stmt(self, a: Stmt, b: Stmt) -> None:
        try:
            self._stmt(a, b)
        except Different as d:
            if d.at is None:
                d.at = (a, b)
            raise

    def _stmt(self, a: Stmt, b: Stmt) -> None:
        if a.__class__ is not b.__class__:
            raise Different(a, b, f"there is {_what(a)} where the intrinsic has {_what(b)}")
        if isinstance(a, For) and isinstance(b, For):
            self._loop(a, b)
        elif isinstance(a, BufferStore) and isinstance(b, BufferStore):
            # The value first: of two accesses that differ, the one on the right says more.
            self.expr(a.value, b.value)
            self.access(a, b)
            self.written.add(b.buffer)
        else:
            self.fields(a, b)

    def _loop(self, a: For, b: For) -> None:
        if not self.ana.can_prove_equal(a.extent, _recast(b.extent, self.vars, a.extent.dtype)):
            raise Different(
                a,
                b,
                f"loop `{a.loop_var.name}` runs {a.extent} times and the intrinsic's "
                f"`{b.loop_var.name}` {b.extent}",
            )
        if _thread(a) != _thread(b):
            mine, their = (f"is bound to {t}" if (t := _thread(x)) else "is not bound" for x in (a, b))
            raise Different(
                a, b, f"loop `{a.loop_var.name}` {mine} and the intrinsic's `{b.loop_var.name}` {their}"
            )
        self.vars[b.loop_var] = sub(a.loop_var, sub(a.min, _recast(b.min, self.vars, a.min.dtype)))
        self.inner[a.loop_var], self.theirs[b.loop_var] = a.min, b.min
        with self.ana.scope():
            self.ana.bind_loop(a.loop_var, a.min, a.extent)
            self.stmt(a.body, b.body)

    # -- expressions -----------------------------------------------------------------------
    def expr(self, a: Any, b: Any) -> None:
        if isinstance(a, BufferLoad) and isinstance(b, BufferLoad):
            self.access(a, b)
            return
        if isinstance(b, Var):
            mine = self.vars.get(b)
            if mine is None or not isinstance(a, PrimExpr) or not self.same(a, mine):
                raise Different(a, b, f"`{a}` is not `{b}`")
            return
        if self._same_count(a, b):
            return
        if a.__class__ is not b.__class__:
            raise Different(a, b, f"`{a}` is not `{b}`")
        if a.dtype is not b.dtype:
            raise Different(a, b, f"`{a}` is {a.dtype} and `{b}` is {b.dtype}")
        if isinstance(a, (Add, Mul, Max, Min, And, Or, EQ, NE)):
            self._commuting(a, b)
            return
        self.fields(a, b)

    def _same_count(self, a: Any, b: Any) -> bool:
        """Whether an integer over their loops is one of ours, however it is written: `(vo*8 + i) % 8` is `i % 8`."""
        if not isinstance(b, _COUNTS) or not isinstance(a, PrimExpr) or a.dtype is not b.dtype:
            return False
        if not a.dtype.is_int or a.dtype.lanes != 1:
            return False
        used = vars_used(b)
        if not used or not used <= self.vars.keys() or any(isinstance(n, BufferLoad) for n in pre_order(b)):
            return False
        return self.same(a, substitute(b, self.vars))

    def _commuting(self, a: Any, b: Any) -> None:
        held = dict(self.regions)
        try:
            self.expr(a.a, b.a)
            self.expr(a.b, b.b)
        except Different as straight:
            self.regions = dict(held)
            try:
                self.expr(a.a, b.b)
                self.expr(a.b, b.a)
            except Different:
                self.regions = held
                raise straight from None

    def fields(self, a: Node, b: Node) -> None:
        for name, _ in field_kinds(a.__class__):
            if name in ("span", "key", "name", "name_hint"):
                continue
            self.value(getattr(a, name), getattr(b, name), a, b)

    def value(self, x: Any, y: Any, a: Node, b: Node) -> None:
        if isinstance(x, Stmt) and isinstance(y, Stmt):
            self.stmt(x, y)
        elif isinstance(x, StringImm) and isinstance(y, StringImm):
            if x.value != y.value:
                raise Different(x, y, f"`{x}` is not `{y}`")
        elif isinstance(x, PrimExpr) and isinstance(y, PrimExpr):
            self.expr(x, y)
        elif isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
            if len(x) != len(y):
                raise Different(a, b, f"there are {len(x)} parts where the intrinsic has {len(y)}")
            for v, w in zip(x, y, strict=True):
                self.value(v, w, a, b)
        elif x is not y and (isinstance(x, Node) or isinstance(y, Node) or x != y):
            raise Different(a, b, f"`{a}` is not `{b}`")

    # -- buffers ---------------------------------------------------------------------------
    def access(self, a: BufferLoad | BufferStore, b: BufferLoad | BufferStore) -> None:
        """An access of ours is one of theirs, moved by an offset that is the same for all of the body."""
        mine, their = a.buffer, b.buffer
        shown = f"`{_access_text(a)}` is not `{_access_text(b)}`"
        if mine.dtype is not their.dtype:
            raise Different(a, b, f"{shown}: {mine.name} is {mine.dtype} and {their.name} is {their.dtype}")
        if mine.scope() != their.scope():
            raise Different(
                a, b, f"{shown}: {mine.name} lies in {mine.scope()} and {their.name} in {their.scope()}"
            )
        lead = len(a.indices) - len(b.indices)
        if lead < 0:
            raise Different(
                a, b, f"{shown}: {mine.name} has {len(a.indices)} dimensions, {their.name} {len(b.indices)}"
            )
        starts = [substitute(i, self.inner) for i in a.indices]
        for i, s in zip(a.indices[:lead], starts[:lead], strict=True):
            if not self.same(i, s):
                raise Different(a, b, f"{shown}: `{i}` is in no dimension of {their.name}")
        for d, index in enumerate(b.indices, lead):
            kind = a.indices[d].dtype
            starts[d] = sub(starts[d], _recast(index, self.theirs, kind))
            if not self.same(a.indices[d], add(starts[d], _recast(index, self.vars, kind))):
                raise Different(a, b, f"{shown}: `{a.indices[d]}` does not go as `{index}` does")
        starts = [self.ana.simplify(s) for s in starts]
        known = self.regions.get(their)
        if known is None:
            self.regions[their] = (mine, starts)
            return
        if known[0] is not mine:
            raise Different(a, b, f"{shown}: {their.name} is {known[0].name} elsewhere")
        if not all(self.same(x, y) for x, y in zip(known[1], starts, strict=True)):
            raise Different(
                a,
                b,
                f"{shown}: {their.name} starts at {_point(known[1])} elsewhere, and here at {_point(starts)}",
            )

    def same(self, a: PrimExpr, b: PrimExpr) -> bool:
        return a is b or (a.dtype.lanes == b.dtype.lanes == 1 and self.ana.can_prove_equal(a, b))


class _Recast(Mutator):
    """An index of the description in our variables and our type of indices."""

    def __init__(self, table: Mapping[Var, PrimExpr], kind: DataType) -> None:
        self.table, self.kind = table, kind

    def visit_Var(self, n: Var) -> PrimExpr:
        return cast(self.kind, self.table.get(n, n))

    def visit_IntImm(self, n: IntImm) -> PrimExpr:
        return const(n.value, self.kind)


def _recast(index: PrimExpr, table: Mapping[Var, PrimExpr], kind: DataType) -> PrimExpr:
    return _Recast(table, kind).visit(index) if index.dtype.lanes == 1 else substitute(index, table)


def match_bodies(ana: Analyzer, ours: Stmt, theirs: Stmt) -> Matched:
    """The correspondence of a body and an equivalent description; raises `Different` if they are not equivalent."""
    plain = _Plain(ana).visit(ours), _Plain(Analyzer()).visit(theirs)
    found = Matched(ana)
    try:
        found.stmt(*plain)
        for w in found.written:
            target = found.regions[w][0]
            for other, (source, _) in found.regions.items():
                if source is target and other is not w:
                    raise Different(
                        *plain,
                        f"{w.name}, which the intrinsic writes, and {other.name} are both {target.name}",
                    )
    except Different as d:
        d.bodies, d.at = plain, d.at or plain
        raise
    return found


def _thread(n: For) -> str:
    return n.thread_binding.thread_tag if n.thread_binding is not None else ""


def _access_text(n: BufferLoad | BufferStore) -> str:
    return f"{n.buffer.name}[{', '.join(map(str, n.indices))}]"


def _point(starts: Sequence[PrimExpr]) -> str:
    return f"[{', '.join(map(str, starts))}]"


def _what(n: Stmt) -> str:
    names = {
        "For": "a loop",
        "BufferStore": "a store",
        "IfThenElse": "a condition",
        "SeqStmt": "a sequence of statements",
        "Evaluate": "a call",
        "LetStmt": "a let",
    }
    return names.get(n.__class__.__name__, n.__class__.__name__)
