"""`tvmc.tune`: tuning of the kernels of a model, with records for `tvmc.compile`."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..ir.transform import PassContext
from ..relay.build_module import as_target
from ..rpc.client import Leases
from ..target import Target
from ..tune.measure.measurer import MeasureOptions, Measurer
from ..tune.measure.remote import Remote
from ..tune.measure.running import Timing
from ..tune.records.database import Database
from ..tune.search.search import SearchOptions
from .compiler import target_of, transformed
from .errors import TVMCException
from .model import TVMCModel
from .tune_display import ModelDisplay
from .tuning import Found, Outcome, chosen_tasks, kept_records, model_tasks, tunable, tune_all

DEFAULT_TRIALS = 1000  # over all tasks; the search ends earlier if little gain is expected
_MODELS = {"xgb": "auto", "ga": "analytical", "gridsearch": "analytical"}


def tune_model(
    tvmc_model: TVMCModel,
    target: Any,
    tuning_records: str | os.PathLike[str] | None = None,
    prior_records: Any = None,
    enable_autoscheduler: bool = False,
    rpc_key: str | None = None,
    hostname: str | None = None,
    port: int | str = 9090,
    trials: int | None = None,
    target_host: Any = None,
    tuner: str = "auto",
    min_repeat_ms: int | None = None,
    early_stopping: int | None = None,
    timeout: float = 10,
    repeat: int | None = None,
    number: int | None = None,
    parallel: int | None = None,
    hardware_params: Any = None,
    include_simple_tasks: bool = True,
    log_estimated_latency: bool = False,
    additional_target_options: Any = None,
    tasks_filter: str = "all",
    desired_layout: str | Sequence[str] | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] | None = None,
    mixed_precision_calculation_type: str | None = None,
    mixed_precision_acc_type: str | None = None,
    seed: int = 0,
    opt_level: int = 3,
    cluster: str | None = None,
    time_limit: float | None = None,
) -> str:
    """Tune the kernels of a model with `trials` measurements, in about `time_limit` seconds. Returns the path of the
    records, for `tvmc.compile`.

    Records are written to `tuning_records`, a database or a file of JSON lines (.json), whose existing records count as
    trials; `prior_records` are further files to start from. `tuner` is a cost model, or the classic name of one. A task
    ends after `early_stopping` trials without an improvement. `timeout` limits the run of a candidate in seconds,
    `parallel` is the number of build processes, `tasks_filter` selects tasks as `--tasks` does, and `cluster` is the
    address of a Dask scheduler whose workers measure; `hostname`, `port` and `rpc_key` name an RPC tracker whose
    servers do. `target`, `desired_layout`, `mixed_precision` and what belongs to it, and `opt_level` are those of the
    later compilation: of a composite target ("dnnl, llvm"), what is left for the last one is tuned. `hardware_params`
    are figures by name, or an `auto_scheduler.HardwareParams`; they become options of the target.
    `enable_autoscheduler` and `number` change nothing, as there is one search.
    """
    tracker = tracker_of(hostname, port, rpc_key)
    target, extra = target_of(target, target_host, additional_target_options)
    target = with_hardware(target, hardware_params)
    chosen = tunable(target, cluster or tracker)
    path = _place(tuning_records)
    transforms = {
        "desired_layout": desired_layout,
        "desired_layout_ops": desired_layout_ops,
        "mixed_precision": mixed_precision,
        "mixed_precision_ops": mixed_precision_ops,
        "mixed_precision_calculation_type": mixed_precision_calculation_type,
        "mixed_precision_acc_type": mixed_precision_acc_type,
    }
    found = chosen_tasks(tasks_filter, left_tasks(tvmc_model, target, opt_level, transforms, extra))
    if not include_simple_tasks:
        found = [f for f in found if is_heavy(f)] or found
    options = patient(
        SearchOptions(seed=seed, model=model_of(tuner), limit=math.inf if time_limit is None else time_limit),
        early_stopping,
    )
    with kept_records(path, _several(prior_records)) as database:
        measure = MeasureOptions(
            builders=parallel,
            run_limit=float(timeout),
            timing=timing_of(repeat, min_repeat_ms),
            seed=seed,
            reproducers=f"{database.path}.wrong",
        )
        outcome = _tuned(
            tvmc_model.name, found, database, trials, options, measure, tracker or cluster, chosen
        )
    if outcome.interrupted:
        raise KeyboardInterrupt
    if log_estimated_latency:
        print(estimated_latency(outcome))
    return str(path)


def left_tasks(
    model: TVMCModel, target: Target, opt_level: int, transforms: Mapping[str, Any], extra: Sequence[Any]
) -> Found:
    """The tasks of a model for a target, without those of the code generators that are named before it."""
    if not extra:
        return model_tasks(model, target, opt_level, (), transforms)
    with PassContext(opt_level):
        model = transformed(model, transforms, extra, "default")
    return model_tasks(model, target, opt_level)


def estimated_latency(outcome: Outcome) -> str:
    """The time of the kernels of a model, tuned and untuned, as a line."""
    return f"estimated latency: {outcome.time(True) * 1e3:.3f} ms, untuned {outcome.time(False) * 1e3:.3f} ms"


def _tuned(
    name: str,
    found: Found,
    database: Database,
    trials: int | None,
    options: SearchOptions,
    measure: MeasureOptions,
    cluster: str | Leases | None,
    target: Target,
) -> Outcome:
    wanted = DEFAULT_TRIALS if trials is None else trials
    if wanted < 1:
        raise TVMCException(f"trials={wanted}: give at least 1")
    with measurer_for(measure, cluster, target) as measurer, ModelDisplay(found) as display:
        return tune_all(name, found, database, wanted, options=options, measure=measurer, told=display)


def _place(given: str | os.PathLike[str] | None) -> Path:
    """The file for the records; a new file by default."""
    if given is None:
        return Path(tempfile.mkdtemp(prefix="tilewright-tune-")) / "tune.db"
    return Path(given)


def _several(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    return given if isinstance(given, (list, tuple)) else (given,)


def tracker_of(hostname: str | None, port: int | str, rpc_key: str | None) -> Leases | None:
    """The tracker whose servers of a key measure; None to measure here."""
    if not hostname and not rpc_key:
        return None
    if not hostname or not rpc_key:
        missing = "rpc_key= (--rpc-key)" if hostname else "hostname= (--rpc-tracker HOST:PORT)"
        raise TVMCException(
            f"tvmc.tune(hostname={hostname!r}, rpc_key={rpc_key!r}): the servers of a tracker measure, which needs "
            f"{missing} too"
        )
    return Leases(hostname, int(port), rpc_key)


_FIGURES = {  # of HardwareParams: options of CPU and of GPU targets, and the units of theirs in one of the figure
    "num_cores": ("num-cores", "", 1),
    "vector_unit_bytes": ("vector-width", "vector_unit_bytes", 8),
    "max_shared_memory_per_block": ("", "max_shared_memory_per_block", 1),
    "max_local_memory_per_block": ("", "max_local_memory_per_block", 1),
    "max_threads_per_block": ("", "max_threads_per_block", 1),
    "warp_size": ("", "thread_warp_size", 1),
}


def with_hardware(target: Any, params: Any) -> Any:
    """A target with the figures of `HardwareParams` (or a table of them) as its options."""
    if not params:
        return target
    given = params if isinstance(params, Mapping) else vars(params)
    made = as_target(target)
    for name, value in given.items():
        on_cpu, on_gpu, scale = _FIGURES.get(name, ("", "", 1))
        option = on_gpu if made.is_gpu else on_cpu
        if option and value and int(value) > 0:
            made = made.with_attr(option, int(value) * (scale if not made.is_gpu else 1))
        elif value and isinstance(params, Mapping):
            raise TVMCException(
                f"{name}={value}: there is no such figure of a {made.kind.name} target; leave it out, or describe the "
                f"machine in the target: {made.kind.name} -machine=…"
            )
    return made


def model_of(tuner: str) -> str:
    """The cost model for the name of a tuner."""
    if tuner.startswith("xgb_"):
        return "auto"
    return _MODELS.get(tuner, tuner)


def patient(options: SearchOptions, early_stopping: int | None) -> SearchOptions:
    """The options of a search that stops a task after this many trials without an improvement."""
    if early_stopping is None:
        return options
    return replace(options, patience=max(1, early_stopping), min_gain=1.0)


def timing_of(repeat: int | None, min_repeat_ms: float | None) -> Timing:
    """The options of measurement, under their classic names."""
    made = Timing()
    if repeat is not None:
        made = replace(made, repeats=max(1, repeat))
    if min_repeat_ms:
        made = replace(made, sample_seconds=min_repeat_ms / 1e3)
    return made


def is_heavy(found: Any) -> bool:
    """Whether a task has a product or a convolution."""
    words = ("conv", "dense", "matmul", "gemm", "einsum")
    return any(word in found[0].name for word in words)


def measurer_for(options: MeasureOptions, cluster: str | Leases | None, target: Target) -> Any:
    """The measurer, for a `with` block: this machine, the servers of a tracker, or the workers of a cluster with a
    device of the target."""
    if not cluster:
        return Measurer(options)
    if isinstance(cluster, Leases):
        return Remote(cluster.session, cluster.key, options)
    from ..tune.measure.fleet import Fleet  # which needs dask.distributed

    return Fleet(cluster, device=target.kind.name if target.is_gpu else "cpu", options=options)
