"""A chain of stages that is scheduled stage by stage: each reads the result of the previous one from memory."""

from __future__ import annotations

from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .row_chain import row_ends, runs_along_rows
from .simple import Work, bytes_of, simple_table

__all__ = ["Apart"]


class Apart:
    """The stages of a chain, one by one.

    wins where   the rows are too few for all threads
    costs        the bytes of every intermediate result, written and read once more
    """

    name = "apart"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single:
            return Refusal("it is not a chain of stages")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        stage, chain = match.stage, match.stage.chain
        ends = row_ends(stage, machine) if runs_along_rows(chain) else 0.0
        work = Work(
            0.0,
            stage.facts.bits,
            0.0,
            left_operations=sum(f.points * (f.work + 1) for f in chain)
            + ends * machine.lanes(stage.facts.bits),
            left_bytes=sum(bytes_of(f) for f in chain),
            left_launches=len(chain),
        )
        return simple_table(match, machine, work, only, shares=(1 if machine.num_cores > 1 else 0,))

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied({}, next=tuple(f.rv for f in match.stage.chain))
