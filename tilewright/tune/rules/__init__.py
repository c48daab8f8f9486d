"""The rules that schedule stages: the rules of a target compete, and the cheapest row of all their tables wins."""

from __future__ import annotations

from ...target import Target
from ..cost import cpu as cpu_cost
from .cpu.apart import Apart
from .cpu.dot_products import DotProducts
from .cpu.elementwise import Elementwise
from .cpu.lane_chain import LaneChain
from .cpu.online import Online
from .cpu.row_chain import RowChain
from .cpu.rows import RowParts, Rows
from .cpu.scaled_blocks import ScaledBlocks
from .cpu.several import Several
from .cpu.several_lanes import SeveralLanes
from .cpu.short_rows import ShortRows
from .cpu.short_sums import ShortSums
from .cpu.stream import Stream
from .cpu.tile import Tile
from .cpu.transpose import Transpose, TransposedOperand
from .cpu.winograd import Winograd
from .family import Family
from .features import machine_features
from .rule import Applied, Match, Refusal, Row, Rule

__all__ = ["CPU", "Applied", "Family", "Match", "Refusal", "Row", "Rule", "family_of", "rules_of"]

# The order breaks ties: of two rows with the same predicted time, the row of the first rule is taken.
CPU: tuple[Rule, ...] = (
    Tile(),
    Winograd(2),
    Winograd(4),
    ScaledBlocks(),
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

# These are asked before stages are inlined.
EARLY: tuple[Rule, ...] = (
    DotProducts("uint8", "int8"),
    DotProducts("int8", "uint8"),
    DotProducts("int8", "int8"),
    DotProducts("uint8", "uint8"),
    DotProducts("int16", "int16"),
    DotProducts("bfloat16", "bfloat16"),
    DotProducts("float32", "float32"),
)


_CPUS = Family(
    CPU,
    cpu_cost,
    machine=lambda target: target.cpu,
    capabilities=lambda target: frozenset(target.cpu.features),
    features=machine_features,
    doubt="its rounding has a price",
    early=EARLY,
)


def family_of(target: Target) -> Family:
    """The family of machines that a target belongs to; those of GPUs and accelerators are loaded on first use."""
    if target.is_accelerator:
        from .accelerator import ACCELERATORS

        return ACCELERATORS
    if not target.is_gpu:
        return _CPUS
    from .gpu import GPUS

    return GPUS


def rules_of(target: Target) -> tuple[Rule, ...]:
    """The rules whose required capabilities a target has."""
    family = family_of(target)
    have = family.capabilities(target)
    return tuple(r for r in (*family.early, *family.rules) if r.needs <= have)
