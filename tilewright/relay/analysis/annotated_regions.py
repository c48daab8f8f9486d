"""The regions of a graph between marks: what one code generator compiles."""

from __future__ import annotations

from typing import Any

from ...ir.errors import TVMError
from ..expr import Call, Constant, If, Tuple, TupleGetItem
from ..visitor import in_order
from .walks import users_of

__all__ = ["AnnotatedRegion", "AnnotatedRegionSet"]


class AnnotatedRegion:
    """Expressions for one code generator: `args` are the marks where it begins, `rets` those where it ends."""

    def __init__(self, number: int, target: str, name: str) -> None:
        self.id, self.target, self.name = number, target, name
        self.nodes: dict[Any, None] = {}  # a set in the order of insertion
        self.args: list[Call] = []
        self.rets: list[Call] = []

    def __repr__(self) -> str:
        return f"AnnotatedRegion({self.name}_{self.id} for {self.target}, {len(self.nodes)} expressions)"


class AnnotatedRegionSet:
    """The regions of an expression, each around the operators that are connected without a mark.

        %0 = compiler_begin(%x, "a")
        %1 = abs(%0)                            one region for "a": args [%0], rets [%3], nodes %0 to %3
        %2 = nn.relu(%1)
        %3 = compiler_end(%2, "a")

    The numbers of regions grow in the order of their first marks.
    """

    def __init__(
        self, expr: Any, region_begin_op: Any, region_end_op: Any, func_name: str = "default"
    ) -> None:
        self.begin, self.end, self.func_name = region_begin_op, region_end_op, func_name
        self.regions: list[AnnotatedRegion] = []
        self._of: dict[Any, AnnotatedRegion] = {}
        self._count = 0
        order = in_order(expr)
        self.users = users_of(order)
        for e in order:
            self._place(e)

    def __len__(self) -> int:
        return len(self.regions)

    def __iter__(self) -> Any:
        return iter(self.regions)

    def get_region(self, expr: Any) -> AnnotatedRegion | None:
        """The region of an expression, or None outside of all."""
        return self._of.get(expr)

    def merge(self, source: AnnotatedRegion, into: AnnotatedRegion) -> None:
        """Make one region of two: marks between them are neither inputs nor results any more."""
        if source is into:
            return
        into.nodes.update(source.nodes)
        self._of.update(dict.fromkeys(source.nodes, into))
        inner = {b for b in (*into.args, *source.args) if self._of.get(b.args[0]) is into}
        into.args = [b for b in (*into.args, *source.args) if b not in inner]
        into.rets = [
            e for e in (*into.rets, *source.rets) if not inner or any(u not in inner for u in self._uses(e))
        ]
        self.regions.remove(source)

    def _uses(self, end: Call) -> Any:
        return self.users.get(end) or (None,)  # the result of the function has no user

    def _is(self, e: Any, op: Any) -> bool:
        return isinstance(e, Call) and e.op is op

    def _place(self, e: Any) -> None:
        if self._is(e, self.begin):
            region = AnnotatedRegion(self._count, e.attrs.compiler, self.func_name)
            self._count += 1
            self.regions.append(region)
            region.args.append(e)
            self._add(e, region)
        elif self._is(e, self.end):
            self._close(e)
        elif isinstance(e, (Call, Tuple, TupleGetItem)):
            self._join(e, list(e.args) if isinstance(e, Call) else e.children())
        elif isinstance(e, If):
            self._join(e, e.children())

    def _add(self, e: Any, region: AnnotatedRegion) -> None:
        region.nodes[e] = None
        self._of[e] = region

    def _close(self, e: Call) -> None:
        region, target = self._of.get(e.args[0]), e.attrs.compiler
        if region is None or region.target != target:
            found = "in no region" if region is None else f"in a region for {region.target!r}"
            raise TVMError(
                f"a region for {target!r} ends at an expression that is {found}: put compiler_begin(…, {target!r}) "
                f"around its inputs\n{e}"
            )
        region.rets.append(e)
        self._add(e, region)

    def _join(self, e: Any, args: list[Any]) -> None:
        """Put an expression into the region of its arguments, which become one."""
        opened = [a for a in args if not self._is(a, self.end) and not _is_free(a)]
        region = next((r for a in opened if (r := self._of.get(a)) is not None), None)
        if region is None:
            return
        for a in opened:
            other = self._of.get(a)
            if other is None:
                raise TVMError(
                    f"an operator has arguments inside and outside of a region for {region.target!r}: put "
                    f"compiler_begin(…, {region.target!r}) around\n{a}"
                )
            self.merge(other, region)
        self._add(e, region)


def _is_free(e: Any) -> bool:
    """Whether an expression depends on nothing, so that it may be in any region."""
    if isinstance(e, Tuple):
        return all(map(_is_free, e.fields))
    return isinstance(e, Constant) or (isinstance(e, Call) and not e.args)
