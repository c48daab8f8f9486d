"""What the targets that are processors have in common: how programs are lowered for them."""

from __future__ import annotations

from typing import Final

from ..tir import transform as T
from . import Pipeline, unless, when

LOWERING: Final = Pipeline(
    blocks=(
        when("tir.disable_assert", T.SkipAssert()),
        T.LowerInitBlock(),
        T.PlanAndUpdateBufferAllocationLocation(),
        T.ConvertBlocksToOpaque(),
        T.CompactBufferAllocation(),
        T.AlignStorage(),
        T.LowerMatchBuffer(),
        T.LowerOpaqueBlock(),
        when("tir.instrument_bound_checkers", T.InstrumentBoundCheckers()),
    ),
    storage=(T.FlattenBuffer(), T.WidenIndices(), T.Simplify()),
    loops=(
        T.InjectPrefetch(),
        T.InjectSoftwarePipeline(),
        T.LoopPartition(),
        T.InjectVirtualThread(),
        T.VectorizeLoop(),
        T.UnmaskScratch(),
        T.InjectDoubleBuffer(),
        unless("tir.disable_storage_rewrite", T.StorageRewrite()),
        T.RunBackAndForth(),
        T.UnrollLoop(),
    ),
    clean=(
        T.RewriteUnsafeSelect(),
        T.Simplify(),
        T.CheckFirst(),
        T.RemoveNoOp(),
        T.HoistIfThenElse(),
        unless("tir.disable_cse_tir", T.CommonSubexprElimTIR()),
    ),
)
