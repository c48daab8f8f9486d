"""`relay.build`: from a module of graph functions to a compiled model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..backends import kinds_with
from ..ir.deep import deep_programs
from ..ir.errors import BuildError
from ..ir.module import IRModule
from ..ir.transform import PassContext, Sequential, get_pass
from ..runtime.devices import Device
from ..target import Target
from ..tune.workload import present
from . import transform
from .backend.assemble import assemble
from .backend.executor import Executor, Runtime
from .backend.executor_factory import AcceleratorFactoryModule, DeviceFactoryModule, ExecutorFactoryModule
from .backend.external import CodeGenerators, call_in_place, external_job, is_external
from .backend.fetch_ahead import wants_fetches
from .backend.graph_form import graph_form
from .backend.kernel import Job, Kernel, job_of, settings_of_now, texts_of
from .backend.memory_plan import alignment_of
from .backend.program import Program, make_program, plan_scratch
from .backend.te_compiler import compile_all
from .binding import bind_params_by_name
from .expr import Expr, Function
from .transform.check_data import CheckData
from .transform.fuse_ops import FuseOps
from .transform.infer_type import infer_module

__all__ = ["bind_params_by_name", "build", "build_config", "create_executor", "optimize"]

# The passes of every model before fusion, in order. Each pass has its own optimization level.
PIPELINE: Final = (
    "RemoveUnusedFunctions",
    "DynamicToStatic",
    "Legalize",
    "FakeQuantizationToInteger",
    "qnn.CanonicalizeOps",
    "SimplifyInference",
    "FoldConstant",
    "EliminateCommonSubexpr",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "CombineParallelBatchMatmul",
    "FoldConstant",
    "FoldScaleAxis",
    "SimplifyExpr",
    "CanonicalizeOps",
    "UseTensorCores",
    "DelayReshape",
    "AlterOpLayout",  # packs from level 4 on: schedules of NCHW with packed weights are faster than blocked layouts
    "FoldConstant",
    "EliminateCommonSubexpr",
    "DeadCodeElimination",
    "GroupAttention",
    "SlicesOfSplits",
    "FastMath",
    "PlanDevices",
    "SplitPhases",
    "AveragesAsProducts",
    "Offload",
    "FoldConstant",  # weights in the layout of a chip
)


def pipeline() -> Sequential:
    """The passes over graphs."""
    packs = transform.AlterOpLayout(pack=PassContext.current().opt_level >= 4)
    found = [packs if name == "AlterOpLayout" else get_pass(name) for name in PIPELINE]
    typed = [p for each in found for p in (each, transform.InferType())]
    return Sequential([transform.InferType(), *typed], name="relay.build")


def optimize(
    mod: Any, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """The module after all passes but fusion, with `params` bound, and the remaining parameters."""
    chosen = as_target(target)
    mod = as_graph_module(mod)
    with deep_programs(), chosen:
        if params:
            mod = mod.clone()
            mod["main"] = bind_params_by_name(mod["main"], params)
        mod = call_in_place(infer_module(mod))
        main = graph_form(mod, mod["main"])
        mod = infer_module(IRModule({"main": main}, mod.type_definitions, mod.attrs))
        return pipeline()(mod), {}


def to_compile(
    mod: IRModule, target: Target, params: Mapping[str, Any] | None
) -> tuple[Program, dict[int, Job]]:
    """The steps of a model after all passes, and the compilation jobs by step."""
    ready, _ = optimize(mod, target, params)
    on_cpu = target.has("aot_executor")
    shared = on_cpu and target.cpu.num_cores > 1
    program = make_program(FuseOps()(CheckData()(ready))["main"], alignment_of(target), shared)
    ahead = wants_fetches(program.weights, target)
    jobs = {}
    for i, step in enumerate(program.steps):
        if is_external(step.fn):
            jobs[i] = external_job(step.fn)  # type: ignore[arg-type]
        elif step.fn is not None:
            jobs[i] = job_of(step.fn, step.known, target, planned=True, ahead=ahead)
    return program, jobs


def build(
    ir_mod: Any,
    target: Any = None,
    target_host: Any = None,
    executor: Executor | str | None = None,
    runtime: Runtime | None = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> ExecutorFactoryModule:
    """Compile a model: passes, fusion, a kernel for each fused function, weights packed, memory planned.

    The result runs through `graph_executor.GraphModule(lib["default"](device))`, and exports as one library. With the
    option `relay.backend.tiers` of the PassContext it returns at once, and answers come from NumPy until other
    processes have compiled the kernels: see backend/tiers.py.
    """
    if workspace_memory_pools is not None or constant_memory_pools is not None:
        raise BuildError("relay.build: memory pools are not supported; there is one arena")
    if isinstance(executor, str):
        executor = Executor(executor)
    ir_mod, chosen = as_graph_module(ir_mod), as_target(target, target_host)
    kind, name = executor or Executor("aot"), _name(mod_name)
    with deep_programs(), chosen:
        program, jobs = to_compile(ir_mod, chosen, params)

        def finish(kernels: dict[str, Kernel]) -> ExecutorFactoryModule:
            return _finished(program, jobs, kernels, chosen, (name, ir_mod, kind))

        external = [j for j in jobs.values() if j.external]
        here = chosen.has("aot_executor") and chosen.llvm.is_host and not external
        if here and PassContext.current().option("relay.backend.tiers"):
            from .backend.tiers import tiered

            settings = settings_of_now(chosen)
            found = tiered(program, jobs, chosen, settings, finish, (name, ir_mod, kind))
            if found is not None:
                return found
        kernels = CodeGenerators().kernels(external, chosen)
        kernels |= compile_all([j for j in jobs.values() if not j.external], chosen)
        return finish(kernels)


def _finished(
    program: Program,
    jobs: Mapping[int, Job],
    kernels: Mapping[str, Kernel],
    target: Target,
    about: tuple[str, IRModule, Executor],
) -> ExecutorFactoryModule:
    """The compiled model of a program and its kernels."""
    name, ir_mod, executor = about
    by_step = {i: kernels[job.key] for i, job in jobs.items()}
    plan_scratch(program, {i: [size for _, size in k.scratch] for i, k in by_step.items()})
    linked, weights = assemble(program, by_step, target, name)
    if target.has("aot_executor"):
        linked.texts = texts_of((j for j in jobs.values() if not j.external), target)
    lib = _FACTORIES[target.kind.family](linked, weights, ir_mod, target, executor)
    lib.schedules = {k.symbol: k.device["schedule"] for k in kernels.values() if k.device is not None}
    return lib


_FACTORIES: Final[dict[str, type[ExecutorFactoryModule]]] = {
    "cpu": ExecutorFactoryModule,
    "gpu": DeviceFactoryModule,
    "accelerator": AcceleratorFactoryModule,
}


def _name(name: str) -> str:
    made = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if not made:
        raise BuildError(f"relay.build(mod_name={name!r}): the name of a model must have a letter")
    return made


_BETWEEN = re.compile(r",\s+")  # targets, one after the other; options have commas without a space


def _one_of(targets: list[Target], host: Any) -> tuple[Target, Any]:
    """The device target of several targets, with its host."""
    devices = [t for t in targets if t.has("device_executor")] or targets[:1]
    others = [t for t in targets if t is not devices[0]] if devices else []
    if len(devices) != 1 or len(others) > 1:
        told = ", ".join(str(t.kind.name) for t in targets) or "none"
        raise BuildError(
            f"relay.build: a model is compiled for one device and its host, not for {told}; give one of them, and one "
            "for the processor"
        )
    return devices[0], others[0] if others and host is None else host


def as_target(target: Any, host: Any = None) -> Target:
    """The target of a model: of several, as `{"cpu": "llvm", "cuda": "cuda"}` or "cuda, llvm", that of the device with
    the CPU as its host."""
    if isinstance(target, Mapping) and not {"kind", "tag"} & set(target):
        target = list(target.values())
    if isinstance(target, str):
        target = _BETWEEN.split(target)
    if isinstance(target, (list, tuple)):
        target, host = _one_of([Target(t) for t in target], host)
    found = Target.current(allow_none=True) if target is None else Target(target, host=host)
    chosen = Target("llvm") if found is None else present(found)
    if not (chosen.has("aot_executor") or chosen.has("device_executor")):
        known = ", ".join(kinds_with(lambda b: bool(b.executor)))
        raise BuildError(f"models are compiled for {known}; {chosen.kind.name!r} is not supported yet")
    return chosen


def as_graph_module(mod: Any) -> IRModule:
    """The argument of `build` as a module with a `main`."""
    if isinstance(mod, Expr):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeError(f"relay.build takes an IRModule or a relay.Function, not {type(mod).__name__}")
    if "main" not in mod or not isinstance(mod["main"], Function):
        known = ", ".join(gv.name_hint for gv in mod.get_global_vars()) or "none"
        raise BuildError(f"relay.build: the module has no graph function 'main'; it has: {known}")
    return mod


def build_config(
    opt_level: int = 2,
    required_pass: Any = None,
    disabled_pass: Any = None,
    trace: Any = None,
    **options: Any,
) -> PassContext:
    """The older name of `tvm.transform.PassContext`."""
    return PassContext(opt_level, required_pass, disabled_pass, trace=trace, config=options or None)


def create_executor(
    kind: str = "debug",
    mod: Any = None,
    device: Device | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Any:
    """An evaluator of expressions: `create_executor("graph", mod).evaluate()(*args)`."""
    from .backend.evaluate import make_evaluator

    return make_evaluator(kind, mod, device or _device_of(target), target, params)


def _device_of(target: Any) -> Device:
    """The device of a target."""
    return Device(as_target(target).kind.device_type, 0)
