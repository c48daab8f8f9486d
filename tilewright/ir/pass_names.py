"""The names of passes: those that exist, those of the classic API, and those that programs make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .errors import TVMError, near_matches

__all__ = ["GRAPH_PASSES", "LOOP_PASSES", "UnknownPassError", "check_pass_names", "note_pass_name"]

# Passes over loop programs, as `tir.transform` offers them; their full names begin with `tir.`.
LOOP_PASSES: Final = (
    "AlignStorage AllreduceTransform AnnotateDeviceRegions AnnotateEntryFunc Apply "
    "ApplyLayoutTransforms BF16ComputeLegalize BF16Legalize BF16StorageLegalize "
    "BindTarget CoProcSync CombineContextCall CommonSubexprElimTIR CompactBufferAllocation "
    "ConvertBlocksToOpaque ConvertForLoopsToSerial ConvertSSA DecorateDeviceScope DefaultGPUSchedule "
    "ExtractPrimFuncConstants FP8ComputeLegalize FP8StorageLegalize Filter FlattenBuffer "
    "ForceNarrowIndexToInt32 HoistExpression HoistIfThenElse InferFragment InjectCopyIntrin "
    "InjectDoubleBuffer InjectPTXAsyncCopy InjectPermutedLayout InjectPrefetch InjectRollingBuffer "
    "InjectSoftwarePipeline InjectVirtualThread InstallDebugSpans InstrumentBoundCheckers "
    "InstrumentProfileIntrinsics LegalizePackedCalls LiftAttrScope LiftThreadBinding LoopPartition "
    "LowerAsyncDMA LowerAutoCopy LowerCrossThreadReduction LowerCustomDatatypes "
    "LowerDeviceKernelLaunch LowerDeviceStorageAccessInfo LowerInitBlock LowerIntrin LowerMatchBuffer "
    "LowerOpaqueBlock LowerTVMBuiltin LowerThreadAllreduce LowerVtcmAlloc LowerWarpMemory "
    "MakePackedAPI MakeUnpackedAPI ManifestSharedMemoryLocalStage MergeDynamicSharedMemoryAllocations "
    "MergeSharedMemoryAllocations NarrowDataType PlanAndUpdateBufferAllocationLocation "
    "PointerValueTypeRewrite ReduceBranchingThroughOvercompute RemapThreadAxis RemoveAssume "
    "RemoveNoOp RemoveStoreUndef RemoveWeightLayoutRewriteBlock RenormalizeSplitPattern "
    "RewriteUnsafeSelect Simplify SkipAssert SplitHostDevice StorageFlatten StorageRewrite "
    "TextureFlatten ThreadSync TransformMmaBufferLayout UnifiedStaticMemoryPlanner UnifyThreadBinding "
    "UnrollLoop UseAssumeToReduceBranches VectorizeLoop VerifyMemory VerifyVTCMLimit "
).split()
# Passes over graphs. A classic program switches some of them off before the graph compiler is loaded.
GRAPH_PASSES: Final = (
    "AlterOpLayout AnnotateSpans AnnotateTarget BackwardFoldScaleAxis BatchingOps CanonicalizeCast "
    "CanonicalizeOps CapturePostDfsIndexInSpans CombineParallelBatchMatmul CombineParallelConv2d "
    "CombineParallelDense CombineParallelOpBatch ConvertLayout DeadCodeElimination "
    "Defunctionalization DefuseOps DivToMul DynamicToStatic EliminateCommonSubexpr EtaExpand "
    "ExtractFakeQuantizedOps ExtractOperators FakeQuantizationToInteger FastMath FirstOrderGradient "
    "FlattenAtrousConv FoldConstant FoldExplicitPadding FoldScaleAxis ForwardFoldScaleAxis FuseOps "
    "InferType Inline InlineComposites InlineGlobals LabelOps LambdaLift LazyGradientInit Legalize "
    "ManifestAlloc ManifestLifetimes MergeCompilerRegions MergeComposite OutlineCompilerFunctions "
    "PartialEvaluate PartitionGraph PlanDevices QnnCanonicalize QnnLegalize RemoveStandaloneReshapes "
    "RemoveUnusedFunctions SimplifyExpr SimplifyFCTranspose SimplifyInference SplitArgs ToANormalForm "
    "ToBasicBlockNormalForm ToCPS ToGraphNormalForm ToMixedPrecision UnCPS qnn.Canonicalize "
    "qnn.Legalize "
).split()

_known: Final[set[str]] = {*(f"tir.{name}" for name in LOOP_PASSES), *GRAPH_PASSES}


class UnknownPassError(TVMError, ValueError):
    """A PassContext names a pass that nobody has made."""


def note_pass_name(name: str) -> None:
    """A pass of this name exists."""
    _known.add(name)


def check_pass_names(names: Iterable[str], what: str) -> None:
    """Refuse names that no pass has: a misspelt one would change nothing, and say nothing."""
    for name in sorted(names):
        if name not in _known:
            near = near_matches(name, _known).partition(" Known are")[0]
            raise UnknownPassError(
                f"PassContext({what}=[{name!r}]): there is no pass of that name{near} "
                "A pass of your own is known once it is made: make it before the context"
            )
