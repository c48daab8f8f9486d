"""The lowering passes, each one file, under their classic names: `tir.transform.UnrollLoop()(mod)`."""

from __future__ import annotations

import functools
import importlib
import re
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


def _snake_case(name: str) -> str:
    """The name of the function of a pass: inject_ptx_async_copy for InjectPTXAsyncCopy."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# Name of the pass -> (file, function). `UnrollLoop` is the function `unroll_loop` in the file of that name; the rows at
# the end are exceptions.
_PASSES = {
    **{
        name: (_snake_case(name), _snake_case(name))
        for name in """
            LowerCustomDatatypes LowerScans BindParallelLoops UnifyThreadBinding LowerCrossThreadReduction
            LowerInitBlock ConvertBlocksToOpaque CompactBufferAllocation AlignStorage LowerMatchBuffer
            InjectPermutedLayout LowerOpaqueBlock LowerBulkCopies SpecializeWarps LowerFragments
            LowerWarpMemory FlattenBuffer WidenIndices Simplify LoopPartition InjectPrefetch
            InjectSoftwarePipeline InjectPTXAsyncCopy VectorizeLoop UnmaskScratch InjectVirtualThread
            InjectDoubleBuffer StorageRewrite RunBackAndForth UnrollLoop CheckFirst FetchEarly RemoveNoOp
            RewriteUnsafeSelect HoistIfThenElse HoistExpression ConvertSSA NarrowDataType LiftAttrScope
            InjectCopyIntrin VersionBuffers DMACommands VectorCommands FoldUopLoop PlaceScopes
            ConvertForLoopsToSerial ThreadSync SkipAssert InstrumentBoundCheckers LowerIntrin RemoveAssume
            RemoveStoreUndef
        """.split()
    },
    "PlanAndUpdateBufferAllocationLocation": ("plan_allocations", "plan_buffer_allocation"),
    "PlaceThreadMemory": ("thread_memory", "place_thread_memory"),
    "StorageFlatten": ("flatten_buffer", "flatten_buffer"),
    "CommonSubexprElimTIR": ("common_subexpr_elim", "common_subexpr_elim"),
    "ForceNarrowIndexToInt32": ("narrow_data_type", "force_narrow_index_to_int32"),
    "CoProcSync": ("coproc_sync", "coproc_sync"),
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
