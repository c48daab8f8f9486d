"""Lowering: the pipeline of phases 0 to 3, from a schedule or function to flat loops."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ..ir.deep import deep_programs
from ..ir.errors import LoweringError
from ..ir.expr import IntImm
from ..ir.function import PrimFunc
from ..ir.module import GlobalVar, IRModule
from ..ir.say_once import say_once
from ..ir.sharing import check_written_out
from ..ir.transform import Pass, PassContext, run_passes
from ..target import Target
from ..target.gpu_machine import register_split
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from ..tir import transform as T
from ..tir.analysis.inplace import with_inplace_pairs
from ..tir.transform.outline_nests import outline_nests

__all__ = ["lower", "lower_in_parts", "lower_kernels", "lower_to_build", "phases"]

Phase = tuple[Any, ...]


def phases(ctx: PassContext | None = None) -> tuple[Phase, Phase, Phase, Phase]:
    """The passes of the four phases, in order.

    Phase 0 turns blocks into loops, phase 1 flattens storage, phase 2 transforms loops (partition,
    vectors, threads, unrolling), phase 3 cleans up.
    """
    ctx = ctx or PassContext.current()
    target = Target.current(allow_none=True)
    # In a kernel a condition costs less than a second copy of the loop with its barriers.
    on_gpu = target is not None and target.is_gpu
    partition = () if on_gpu else (T.LoopPartition(),)
    warp = int(target.thread_warp_size) if target is not None and target.kind.name == "cuda" else 0
    return (
        (
            *((T.SkipAssert(),) if ctx.option("tir.disable_assert") else ()),
            *((T.BindParallelLoops(),) if on_gpu else ()),
            T.UnifyThreadBinding(),
            T.LowerCrossThreadReduction(warp=warp),
            T.LowerInitBlock(),
            T.PlanAndUpdateBufferAllocationLocation(),
            T.PlaceThreadMemory(),
            T.ConvertBlocksToOpaque(),
            T.CompactBufferAllocation(),
            T.AlignStorage(),
            T.LowerBulkCopies(),
            T.LowerMatchBuffer(),
            T.InjectPermutedLayout(),
            T.LowerOpaqueBlock(),
            T.LowerFragments(),
            *_bound_checkers(ctx, on_gpu),
        ),
        (T.FlattenBuffer(), T.WidenIndices(check_sizes=on_gpu), T.Simplify(), T.LowerWarpMemory()),
        (
            T.InjectPrefetch(),
            T.SpecializeWarps(registers=register_split),
            T.InjectSoftwarePipeline(),
            *partition,
            T.InjectVirtualThread(),
            T.VectorizeLoop(),
            *(() if on_gpu else (T.UnmaskScratch(),)),
            T.InjectDoubleBuffer(),
            *(() if ctx.option("tir.disable_storage_rewrite") else (T.StorageRewrite(),)),
            T.RunBackAndForth(),
            T.UnrollLoop(),
            T.InjectPTXAsyncCopy(),
        ),
        (
            T.RewriteUnsafeSelect(),
            T.Simplify(),
            T.FetchEarly() if on_gpu else T.CheckFirst(),
            T.RemoveNoOp(),
            T.HoistIfThenElse(),
            *(() if ctx.option("tir.disable_cse_tir") else (T.CommonSubexprElimTIR(),)),
        ),
    )


def _bound_checkers(ctx: PassContext, on_gpu: bool) -> Phase:
    """The pass that checks indices while a program runs, where the context asks for it."""
    if not ctx.option("tir.instrument_bound_checkers"):
        return ()
    if on_gpu:
        say_once(
            "pass option 'tir.instrument_bound_checkers' does nothing for kernels of a GPU; use tir.interpret"
        )
        return ()
    return (T.InstrumentBoundCheckers(),)


def lower(
    inp: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """Lower a schedule, a PrimFunc or a module to flat loops; `simple_mode` changes nothing here."""
    mod = _checked_module(inp, args, name, binds)
    return run_passes(_pipeline(), mod)


def lower_to_build(
    inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Any, Any] | None
) -> IRModule:
    """As `lower`, with what a call may give twice noted in each function."""
    return run_passes(_pipeline(), _noted(_checked_module(inp, args, name, binds)))


def _noted(mod: IRModule) -> IRModule:
    return mod.map_functions(lambda f: with_inplace_pairs(f) if isinstance(f, PrimFunc) else f)


def lower_in_parts(
    inp: Any,
    args: Sequence[Any] | None,
    name: str,
    binds: Mapping[Any, Any] | None,
    named: Callable[[PrimFunc], str],
    known: Container[str],
) -> tuple[IRModule, dict[str, IRModule | None]]:
    """As `lower`, with each parallel loop that runs once in a module of its own, by what `named` calls it; None for
    those that are `known`.

    Loops are cut out when nothing that is left to do concerns more than one of them.
    """
    mod, pipeline = _noted(_checked_module(inp, args, name, binds)), _pipeline()
    names = [p.info.name for p in pipeline if isinstance(p, Pass)]
    if len(names) < len(pipeline) or "tir.StorageRewrite" not in names:
        return run_passes(pipeline, mod), {}
    cut = names.index("tir.StorageRewrite") + 1
    mod = run_passes(pipeline[:cut], mod)
    functions: dict[GlobalVar, Any] = {}
    nests: dict[str, PrimFunc] = {}
    for gv, func in mod.functions.items():
        functions[gv] = func
        if isinstance(func, PrimFunc):
            functions[gv], made = outline_nests(func, named)
            nests |= made
    rest = pipeline[cut:]
    lowered = {n: None if n in known else run_passes(rest, IRModule({n: nest})) for n, nest in nests.items()}
    return run_passes(rest, IRModule(functions)), lowered


def _checked_module(
    inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Any, Any] | None
) -> IRModule:
    """What is to be lowered, as a module in block form."""
    with deep_programs():
        mod = as_module(inp, args, name, binds)
        if PassContext.current().option("tilewright.auto_schedule"):
            mod = _scheduled(mod)
        if not PassContext.current().option("tir.noalias"):
            mod = mod.map_functions(_may_alias)
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            check_written_out(func, f"lowering {gv.name_hint!r}")
    return mod


def _may_alias(func: Any) -> Any:
    """A function that does not promise that its buffers lie apart."""
    known = isinstance(func, PrimFunc) and func.attrs.get("tir.noalias")
    return func.with_attr("tir.noalias", False) if known else func


def _pipeline() -> list[Any]:
    """The passes of this context, those that it adds among them."""
    ctx = PassContext.current()
    added: list[list[Any]] = [[], [], [], []]
    for entry in ctx.config.get("tir.add_lower_pass") or ():
        phase, extra = _added(entry)
        added[phase].append(extra)
    pipeline: list[Any] = []
    for passes, extra in zip(phases(ctx), added, strict=True):
        pipeline += [*passes, *extra]
    return pipeline


def _scheduled(mod: IRModule) -> IRModule:
    """A module with what is unscheduled in it scheduled for the target at hand."""
    from ..tune.auto import schedule_unscheduled  # the scheduler loads NumPy

    return schedule_unscheduled(mod, Target.current(allow_none=True) or Target("llvm"))


def lower_kernels(mod: IRModule) -> IRModule:
    """Lower a module for a GPU up to where kernels are cut out of their functions: with all barriers."""
    return run_passes([T.ThreadSync("shared.cluster"), T.ThreadSync("shared", "shared.dyn")], lower(mod))


def _added(entry: Any) -> tuple[int, Any]:
    """A pair of phase and pass of `tir.add_lower_pass`, checked."""
    pair = tuple(entry) if isinstance(entry, (tuple, list)) else ()
    if len(pair) != 2 or not isinstance(pair[0], (int, IntImm)) or not callable(pair[1]):
        raise LoweringError(
            "tir.add_lower_pass takes pairs of a phase (0 to 3) and a pass, such as (1, vectorize), "
            f"not {entry!r}"
        )
    phase = int(pair[0])
    if phase not in range(4):
        raise LoweringError(f"tir.add_lower_pass: phase {phase} does not exist; there are 0, 1, 2 and 3")
    return phase, pair[1]


def as_module(inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Any, Any] | None) -> IRModule:
    """What a user hands to `lower` or `build`, as a module in block form."""
    if isinstance(inp, IRModule):
        if args is not None and len(args):
            raise ValueError("args go with a te schedule; a module says itself what its functions take")
        return inp
    if isinstance(inp, PrimFunc):
        if args is not None and len(args):
            raise ValueError("args go with a te schedule; a PrimFunc says itself what it takes")
        symbol = inp.attrs.get("global_symbol")
        if symbol is None or (name != "main" and symbol != name):
            inp = inp.with_attr("global_symbol", name)
        return IRModule({str(inp.attrs["global_symbol"]): inp})
    to_func = getattr(inp, "to_prim_func", None)
    if to_func is not None:
        if args is None:
            raise ValueError(
                "lowering a te schedule needs args: the tensors that the function takes, in order"
            )
        return IRModule({name: to_func(args, name=name, binds=binds)})
    if isinstance(inp, (list, tuple)) and all(isinstance(t, Tensor) for t in inp):
        return IRModule({name: create_prim_func(list(inp)).with_attr("global_symbol", name)})
    if hasattr(inp, "mod") and isinstance(inp.mod, IRModule):  # a tir.Schedule
        if args is None or len(inp.mod.functions) != 1:
            return inp.mod
        (func,) = inp.mod.functions.values()  # with args, as the tuners give it: named as a te schedule is
        return IRModule({name: func.with_attr("global_symbol", name)})
    raise TypeError(
        f"expected a te.Schedule, a PrimFunc, an IRModule or a tir.Schedule, not {type(inp).__name__}"
    )
