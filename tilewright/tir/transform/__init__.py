"""The lowering passes, each one file, under their classic names: `tir.transform.UnrollLoop()(mod)`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ...absent import attributes
from ...ir.module import IRModule
from ...ir.pass_names import note_pass_name
from ...ir.transform import (
    PassContext,
    PassFactory,
    PassInfo,
    PrimFuncPass,
    module_pass,
    prim_func_pass,
)
from .hoisted import HoistedConditionals, HoistedLetBindings, hoisted

# name of the pass -> (file, function)
_PASSES = {
    "LowerCustomDatatypes": ("lower_custom_datatypes", "lower_custom_datatypes"),
    "BindParallelLoops": ("bind_parallel_loops", "bind_parallel_loops"),
    "UnifyThreadBinding": ("unify_thread_binding", "unify_thread_binding"),
    "LowerCrossThreadReduction": ("lower_cross_thread_reduction", "lower_cross_thread_reduction"),
    "LowerInitBlock": ("lower_init_block", "lower_init_block"),
    "PlanAndUpdateBufferAllocationLocation": (
        "plan_allocations",
        "plan_buffer_allocation",
    ),
    "PlaceThreadMemory": ("thread_memory", "place_thread_memory"),
    "ConvertBlocksToOpaque": ("convert_blocks_to_opaque", "convert_blocks_to_opaque"),
    "CompactBufferAllocation": ("compact_buffer_allocation", "compact_buffer_allocation"),
    "AlignStorage": ("align_storage", "align_storage"),
    "LowerMatchBuffer": ("lower_match_buffer", "lower_match_buffer"),
    "InjectPermutedLayout": ("inject_permuted_layout", "inject_permuted_layout"),
    "LowerOpaqueBlock": ("lower_opaque_block", "lower_opaque_block"),
    "LowerBulkCopies": ("lower_bulk_copies", "lower_bulk_copies"),
    "SpecializeWarps": ("specialize_warps", "specialize_warps"),
    "LowerFragments": ("lower_fragments", "lower_fragments"),
    "LowerWarpMemory": ("lower_warp_memory", "lower_warp_memory"),
    "FlattenBuffer": ("flatten_buffer", "flatten_buffer"),
    "StorageFlatten": ("flatten_buffer", "flatten_buffer"),
    "WidenIndices": ("widen_indices", "widen_indices"),
    "Simplify": ("simplify", "simplify"),
    "LoopPartition": ("loop_partition", "loop_partition"),
    "InjectPrefetch": ("inject_prefetch", "inject_prefetch"),
    "InjectSoftwarePipeline": ("inject_software_pipeline", "inject_software_pipeline"),
    "InjectPTXAsyncCopy": ("inject_ptx_async_copy", "inject_ptx_async_copy"),
    "VectorizeLoop": ("vectorize_loop", "vectorize_loop"),
    "UnmaskScratch": ("unmask_scratch", "unmask_scratch"),
    "InjectVirtualThread": ("inject_virtual_thread", "inject_virtual_thread"),
    "InjectDoubleBuffer": ("inject_double_buffer", "inject_double_buffer"),
    "StorageRewrite": ("storage_rewrite", "storage_rewrite"),
    "RunBackAndForth": ("run_back_and_forth", "run_back_and_forth"),
    "UnrollLoop": ("unroll_loop", "unroll_loop"),
    "CheckFirst": ("check_first", "check_first"),
    "FetchEarly": ("fetch_early", "fetch_early"),
    "RemoveNoOp": ("remove_no_op", "remove_no_op"),
    "RewriteUnsafeSelect": ("rewrite_unsafe_select", "rewrite_unsafe_select"),
    "HoistIfThenElse": ("hoist_if_then_else", "hoist_if_then_else"),
    "HoistExpression": ("hoist_expression", "hoist_expression"),
    "CommonSubexprElimTIR": ("common_subexpr_elim", "common_subexpr_elim"),
    "ConvertSSA": ("convert_ssa", "convert_ssa"),
    "NarrowDataType": ("narrow_data_type", "narrow_data_type"),
    "ForceNarrowIndexToInt32": ("narrow_data_type", "force_narrow_index_to_int32"),
    "LiftAttrScope": ("lift_attr_scope", "lift_attr_scope"),
    "InjectCopyIntrin": ("inject_copy_intrin", "inject_copy_intrin"),
    "VersionBuffers": ("version_buffers", "version_buffers"),
    "DMACommands": ("dma_commands", "dma_commands"),
    "VectorCommands": ("vector_commands", "vector_commands"),
    "FoldUopLoop": ("fold_uop_loop", "fold_uop_loop"),
    "PlaceScopes": ("place_scopes", "place_scopes"),
    "CoProcSync": ("coproc_sync", "coproc_sync"),
    "ConvertForLoopsToSerial": ("convert_for_loops_to_serial", "convert_for_loops_to_serial"),
    "ThreadSync": ("thread_sync", "thread_sync"),
    "SkipAssert": ("skip_assert", "skip_assert"),
    "InstrumentBoundCheckers": ("instrument_bound_checkers", "instrument_bound_checkers"),
    "LowerIntrin": ("lower_intrin", "lower_intrin"),
    "RemoveAssume": ("remove_assume", "remove_assume"),
    "RemoveStoreUndef": ("remove_store_undef", "remove_store_undef"),
}
# passes over whole modules: name of the pass -> (file, function); the arguments of the pass are those of the function
_MODULE_PASSES = {
    "AnnotateEntryFunc": ("annotate_entry_func", "annotate_entry_func"),
    "BindTarget": ("bind_target", "bind_target"),
    "Filter": ("filter_functions", "filter_functions"),
    "VerifyMemory": ("verify_memory", "verify_memory"),
}
# name of the pass -> how its options in a PassContext become arguments
_OPTIONS: dict[str, Callable[[PassContext], Mapping[str, Any]]] = {
    "CommonSubexprElimTIR": lambda ctx: {
        "identify_equiv_terms": ctx.option("tir.enable_equiv_terms_in_cse_tir"),
    },
    "HoistExpression": lambda ctx: hoisted(ctx.config.get("tir.HoistExpression")),
    "HoistIfThenElse": lambda ctx: {
        "block_scope": ctx.option("tir.HoistIfThenElse")["support_block_scope_hosting"]
    },
    "InjectDoubleBuffer": lambda ctx: ctx.option("tir.InjectDoubleBuffer"),
    "LoopPartition": lambda ctx: {
        "partition_const_loop": ctx.option("tir.LoopPartition")["partition_const_loop"]
    },
    "LowerIntrin": lambda ctx: {"keep_trivial_loops": ctx.option("tir.debug_keep_trivial_loop")},
    "LowerOpaqueBlock": lambda ctx: {"keep_trivial_loops": ctx.option("tir.debug_keep_trivial_loop")},
    "Simplify": lambda ctx: {
        "keep_trivial_loops": ctx.option("tir.debug_keep_trivial_loop"),
        **{k: v for k, v in ctx.option("tir.Simplify").items() if k != "transitively_prove_inequalities"},
    },
    "UnrollLoop": lambda ctx: ctx.option("tir.UnrollLoop"),
    "VectorizeLoop": lambda ctx: {
        "enable": not ctx.option("tir.disable_vectorize"),
        "predicates": ctx.option("tir.enable_buffer_level_predication"),
    },
}
for _name in (*_PASSES, *_MODULE_PASSES):
    note_pass_name(f"tir.{_name}")
_factories: dict[str, Any] = {}
_absent = attributes(__name__)


def __getattr__(name: str) -> Any:
    if name == "Apply":
        return _apply
    if name == "SplitHostDevice":
        return _split_host_device
    if name in _MODULE_PASSES:
        return functools.partial(_module_pass, name)
    entry = _PASSES.get(name)
    if entry is None:
        return _absent(name)
    made = _factories.get(name)
    if made is None:
        file, function = entry
        made = _factories[name] = PassFactory(
            lambda: getattr(importlib.import_module(f".{file}", __name__), function),
            function,
            PassInfo(0, f"tir.{name}"),
            _OPTIONS.get(name),
        )
    return made


def _module_pass(name: str, *args: Any) -> Any:
    """A pass over whole modules."""
    file, function = _MODULE_PASSES[name]

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return getattr(importlib.import_module(f".{file}", __name__), function)(mod, *args)  # type: ignore[no-any-return]

    return module_pass(run, opt_level=0, name=f"tir.{name}")


def _apply(function: Any) -> Any:
    """A pass that applies `function` to each PrimFunc."""
    return prim_func_pass(lambda f, mod, ctx: function(f), opt_level=0, name="tir.Apply")


def _split_host_device(limits: Any = None) -> Any:
    """The pass that cuts kernels out of the functions that launch them; with `limits`, for a device alone."""
    from .split_host_device import split_host_device

    return module_pass(
        lambda mod, ctx: split_host_device(mod, limits), opt_level=0, name="tir.SplitHostDevice"
    )


def __dir__() -> list[str]:
    return sorted(
        [
            *_PASSES,
            *_MODULE_PASSES,
            "HoistedConditionals",
            "HoistedLetBindings",
            "SplitHostDevice",
            "Apply",
            "PrimFuncPass",
            "prim_func_pass",
        ]
    )
