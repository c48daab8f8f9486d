"""The rules that schedule stages: the rules of a target compete, and the cheapest row of all their tables wins."""

from __future__ import annotations

from ...target import Target
from .cpu.apart import Apart
from .cpu.elementwise import Elementwise
from .cpu.lane_chain import LaneChain
from .cpu.online import Online
from .cpu.row_chain import RowChain
from .cpu.rows import RowParts, Rows
from .cpu.several import Several
from .cpu.several_lanes import SeveralLanes
from .cpu.short_rows import ShortRows
from .cpu.short_sums import ShortSums
from .cpu.stream import Stream
from .cpu.tile import Tile
from .cpu.transpose import Transpose, TransposedOperand
from .cpu.winograd import Winograd
from .rule import Applied, Match, Refusal, Row, Rule

__all__ = ["CPU", "Applied", "Match", "Refusal", "Row", "Rule", "rules_of"]

# The order breaks ties: of two rows with the same predicted time, the row of the first rule is taken.
CPU: tuple[Rule, ...] = (
    Tile(),
    Winograd(2),
    Winograd(4),
    ShortSums(),
    Stream(),
    Rows(),
    RowParts(),
    RowChain(),
    LaneChain(),
    ShortRows(),
    Online(),
    Apart(),
    Several(),
    SeveralLanes(),
    Transpose(),
    TransposedOperand(),
    Elementwise(),
)


def rules_of(target: Target) -> tuple[Rule, ...]:
    """The rules whose required capabilities a target has."""
    return tuple(r for r in CPU if r.needs <= target.cpu.features)
