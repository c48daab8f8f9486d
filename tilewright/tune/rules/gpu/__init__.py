"""The rules for GPUs: every stage becomes a kernel, or a part of one."""

from __future__ import annotations

from ....target import Target
from ...cost import gpu as gpu_cost
from ..family import Family
from ..rule import Rule
from .attention import AttentionApart, FusedAttention
from .attention_parts import AttentionParts
from .columns import Columns
from .dp4a import Dp4a
from .elementwise import Elementwise
from .figures import machine_features
from .im2col import Im2colDp4a, Im2colLines, Im2colMma, Im2colWgmma
from .im2col_threads import GatheredMma, Im2colSimt, Im2colSimtTma
from .mma import Mma
from .plain import ParallelLoops, Plain, SingleThread
from .row_chain import Apart, RowChain, SharedChain
from .row_parts import RowParts
from .rows import Rows
from .scan import Scans
from .shared_tile import SharedTiles
from .simt import Simt
from .simt_tma import SimtTma
from .transpose import Transpose
from .wgmma import Wgmma
from .windows import Windows

__all__ = ["EARLY", "GPU", "GPUS"]

# The order breaks ties: of two rows with the same predicted time, the row of the first rule is taken.
GPU: tuple[Rule, ...] = (
    Wgmma(),
    Mma(),
    SimtTma(),
    Simt(),
    Dp4a(),
    Im2colLines(),
    Im2colWgmma(),
    Im2colMma(),
    GatheredMma(),
    Im2colDp4a(),
    Im2colSimtTma(),
    Im2colSimt(),
    Windows(),
    SharedTiles(),
    RowChain(),
    SharedChain(),
    Apart(),
    Rows(),
    RowParts(),
    Columns(),
    Scans(),
    Transpose(),
    Elementwise(),
    ParallelLoops(),
    Plain(),
    SingleThread(),
)

# These are asked before stages are inlined.
EARLY: tuple[Rule, ...] = (FusedAttention(), AttentionApart(), AttentionParts())


def _capabilities(target: Target) -> frozenset[str]:
    """The capabilities of a target; shared memory is one of them, so that rules can be asked to do without it."""
    have = {x for rule in (*EARLY, *GPU) for x in rule.needs if target.has(x)}
    return frozenset(have | {"shared_memory"})


GPUS = Family(
    GPU,
    gpu_cost,
    machine=lambda target: target.gpu,
    capabilities=_capabilities,
    features=machine_features,
    doubt="but estimates of its kind are not comparable yet, and it competes with a margin",
    early=EARLY,
    fine=("fetch", "unroll", "stages", "lanes"),  # they do not change the tile
)
