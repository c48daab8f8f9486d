"""MergeCompilerRegions: neighbouring regions for the same code generator become one."""

from __future__ import annotations

from typing import Any

from ..analysis.annotated_regions import AnnotatedRegion, AnnotatedRegionSet
from ..expr import Call, Function, If
from ..op.annotation import compiler_begin, compiler_end
from ..visitor import in_order
from .rewriting import Mutator, is_call, typed_pass


def merge_compiler_regions(func: Function) -> Function:
    """Take away the marks between regions for the same code generator.

        %0 = compiler_end(abs(compiler_begin(%x, "a")), "a")
        compiler_end(nn.relu(compiler_begin(%0, "a")), "a")
            ->
        compiler_end(nn.relu(abs(compiler_begin(%x, "a"))), "a")

    Two regions stay apart where an expression of another code generator is between them: one function cannot run
    before and after it.

    Needs: types, and marks of `AnnotateTarget` or of `compiler_begin` and `compiler_end`.
    """
    regions = regions_of(func)
    if not regions.regions:
        return func
    work = _Merge(regions)
    for e in in_order(func):
        if is_call(e, compiler_end):
            work.visit(regions.get_region(e))
    made: Function = _Unmark(regions).visit(func)
    return made


def regions_of(func: Function, name: str = "default") -> AnnotatedRegionSet:
    """The regions between the marks of a function."""
    return AnnotatedRegionSet(func, compiler_begin.op, compiler_end.op, name)  # type: ignore[attr-defined]


class _Merge:
    """Merges each region with those that it reads.

    `apart` has, for each region, those that it must not be merged with: some other code generator's region reads them
    and is read, however far away, by this one.
    """

    def __init__(self, regions: AnnotatedRegionSet) -> None:
        self.regions = regions
        self.done: set[AnnotatedRegion] = set()
        self.apart: dict[AnnotatedRegion, set[AnnotatedRegion]] = {}

    def visit(self, region: AnnotatedRegion | None) -> None:
        if region is None or region in self.done:
            return
        self.done.add(region)
        for begin in list(region.args):
            self.visit(self.regions.get_region(begin.args[0]))
        read: dict[AnnotatedRegion, None] = {}
        near: dict[AnnotatedRegion, None] = {}
        for begin in region.args:
            found = self.regions.get_region(begin.args[0])
            if found is not None:
                read[found] = near[found] = None
            else:
                near.update(dict.fromkeys(self._of_branches(begin.args[0])))
        apart = self.apart.setdefault(region, set())
        for each in near:
            apart |= self.apart.get(each, set())
        for parent in read:
            if parent.target != region.target:
                apart.add(parent)
            elif parent not in apart and parent is not region:
                self.regions.merge(parent, region)
                self._renamed(parent, region)

    def _renamed(self, old: AnnotatedRegion, new: AnnotatedRegion) -> None:
        for apart in self.apart.values():
            if old in apart:
                apart.discard(old)
                apart.add(new)

    def _of_branches(self, expr: Any) -> list[AnnotatedRegion]:
        """The regions that determine the value of a branch."""
        if not isinstance(expr, If):
            return []
        out: list[AnnotatedRegion] = []
        for e in expr.children():
            found = self.regions.get_region(e)
            out += self._of_branches(e) if found is None else [found]
        return out


class _Unmark(Mutator):
    """Takes away pairs of marks inside a region."""

    def __init__(self, regions: AnnotatedRegionSet) -> None:
        super().__init__()
        self.regions = regions

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if is_call(call, compiler_begin) and is_call(call.args[0], compiler_end):
            if self.regions.get_region(call) is self.regions.get_region(call.args[0]):
                return new.args[0].args[0]
        return new


MergeCompilerRegions = typed_pass(merge_compiler_regions, name="MergeCompilerRegions", opt_level=0)
