"""`SearchTask`: a program to be tuned for a target, and the calls that begin and end its tuning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..compiler.build import build
from ..forks import cached_property
from ..ir.serialize import load_json, save_json
from ..target import Target
from ..tir.schedule import Schedule
from ..tune.auto import auto_schedule as zero_trial
from ..tune.errors import TuneError
from ..tune.records.database import Record
from ..tune.records.history import History
from ..tune.search.search import apply_record
from ..tune.workload import Task, present
from .compute_dag import ComputeDAG, LayoutRewriteOption
from .measure import builder_of, register_task_input_buffer, runner_of, special_inputs, task_input_buffers
from .workload_registry import WORKLOAD_FUNC_REGISTRY, is_registered, make_workload_key, workload_func_name


class HardwareParams:
    """Figures of the hardware. They are those of the target, where they are not given.

    The search takes its figures from the target itself (`-num-cores=4`, `-mcpu=…`), so that records of the same
    target were found with the same ones.
    """

    def __init__(
        self,
        num_cores: int | None = None,
        vector_unit_bytes: int | None = None,
        cache_line_bytes: int | None = None,
        max_shared_memory_per_block: int | None = None,
        max_local_memory_per_block: int | None = None,
        max_threads_per_block: int | None = None,
        max_vthread_extent: int | None = None,
        warp_size: int | None = None,
        target: Any = None,
        target_host: Any = None,
    ) -> None:
        known = _figures(Target(target, host=target_host)) if target is not None else {}

        def pick(given: int | None, name: str) -> int:
            return known.get(name, 0) if given is None else int(given)

        self.num_cores = pick(num_cores, "num_cores")
        self.vector_unit_bytes = pick(vector_unit_bytes, "vector_unit_bytes")
        self.cache_line_bytes = pick(cache_line_bytes, "cache_line_bytes")
        self.max_shared_memory_per_block = pick(max_shared_memory_per_block, "max_shared_memory_per_block")
        self.max_local_memory_per_block = pick(max_local_memory_per_block, "max_local_memory_per_block")
        self.max_threads_per_block = pick(max_threads_per_block, "max_threads_per_block")
        self.max_vthread_extent = pick(max_vthread_extent, "max_vthread_extent")
        self.warp_size = pick(warp_size, "warp_size")

    def __str__(self) -> str:
        lines = "\n".join(f"  {name}: {value}" for name, value in vars(self).items())
        return f"HardwareParams:\n{lines}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HardwareParams) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


def _figures(target: Target) -> dict[str, int]:
    if target.is_gpu:
        gpu = target.gpu
        return {
            "num_cores": -1,
            "vector_unit_bytes": 16,
            "cache_line_bytes": 64,
            "max_shared_memory_per_block": gpu.shared_memory_per_block,
            "max_local_memory_per_block": 2**31 - 1,
            "max_threads_per_block": gpu.max_threads_per_block,
            "max_vthread_extent": 8,
            "warp_size": int(target.attrs.get("thread_warp_size", 32)),
        }
    cpu = target.cpu
    return {
        "num_cores": cpu.num_cores,
        "vector_unit_bytes": cpu.vector_bits // 8,
        "cache_line_bytes": cpu.cache_sizes.line,
    }


class TuningOptions:
    """Options of tuning: the number of trials, early stopping, the measurer, and callbacks.

    With `early_stopping` it ends after so many trials without a better one; without it, when little more is expected
    to be won. Up to `num_measures_per_round` are measured before the model learns from them; the engine takes fewer.
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: Any = "local",
        runner: Any = "local",
        measure_callbacks: Sequence[Any] | None = None,
    ) -> None:
        if num_measure_trials < 0 or num_measures_per_round < 1:
            raise ValueError(
                "TuningOptions: num_measure_trials is a number from 0 on and num_measures_per_round from 1 on"
            )
        self.num_measure_trials = int(num_measure_trials)
        self.early_stopping = None if early_stopping in (None, -1) else int(early_stopping or 0)
        self.num_measures_per_round = int(num_measures_per_round)
        self.verbose = int(verbose)
        self.builder, self.runner = builder_of(builder), runner_of(runner)
        self.measure_callbacks = list(measure_callbacks or ())


class SearchTask:
    """A program to be tuned for a target: of a registered function and arguments, of a ComputeDAG, or of a key."""

    def __init__(
        self,
        func: Any = None,
        args: Any = None,
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: Any = None,
        target_host: Any = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: LayoutRewriteOption | None = None,
        task_inputs: Any = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:
        if func is not None:
            workload_key = make_workload_key(func, args if args is not None else ())
        if workload_key is None and compute_dag is None:
            raise ValueError("SearchTask takes func= and args=, or compute_dag=, or workload_key=")
        self.compute_dag = compute_dag if compute_dag is not None else ComputeDAG(str(workload_key))
        self.workload_key = workload_key if workload_key is not None else self.compute_dag.workload_key()
        if not is_registered(self.workload_key):  # so that the key alone suffices from here on
            WORKLOAD_FUNC_REGISTRY[workload_func_name(self.workload_key)] = self.compute_dag
        chosen = Target.current(allow_none=True) if target is None else target
        self.target = present(Target(chosen if chosen is not None else "llvm", host=target_host))
        self.target_host = self.target.host
        self.hardware_params = hardware_params or HardwareParams(target=self.target)
        self._check_hardware(hardware_params)
        self.layout_rewrite_option = (
            layout_rewrite_option
            if layout_rewrite_option is not None
            else LayoutRewriteOption.get_target_default(self.target)
        )
        self.desc = desc
        self.task_input_names = self._register_inputs(
            task_inputs, task_inputs_overwrite, task_inputs_save_to_file
        )

    @staticmethod
    def of(task: Task, desc: str = "", hardware_params: HardwareParams | None = None) -> SearchTask:
        """A task of the engine, such as one of a model."""
        dag = ComputeDAG(task.mod, task.constants)
        made = SearchTask(compute_dag=dag, target=task.target, hardware_params=hardware_params, desc=desc)
        made.task = task
        return made

    def _check_hardware(self, given: HardwareParams | None) -> None:
        if given is None or self.target.is_gpu or given.num_cores in (0, self.target.cpu.num_cores):
            return
        warnings.warn(
            f"hardware_params say {given.num_cores} cores, and the search takes the {self.target.cpu.num_cores} of "
            f"the target; write them there: {self.target.kind.name} -num-cores={given.num_cores}",
            RuntimeWarning,
            stacklevel=3,
        )

    def _register_inputs(self, given: Any, overwrite: bool, save: bool) -> list[str]:
        if given is None:
            return []
        names = list(given)
        if isinstance(given, Mapping):
            for name, data in given.items():
                register_task_input_buffer(self.workload_key, name, data, overwrite, save)
        return names

    # -- for the engine ----------------------------------------------------------------------------
    @cached_property
    def task(self) -> Task:
        """The task as the engine has it."""
        return Task(self.compute_dag.mod, self.target, self.compute_dag.constants, inputs=self._inputs())

    def _inputs(self) -> dict[str, Any]:
        """The values of parameters that are registered, by the names of the parameters."""
        func = self.compute_dag.func
        named = {b.name for b in func.buffer_map.values()}
        held = {k: v for k, v in task_input_buffers(self.workload_key).items() if k in named}
        special = special_inputs(workload_func_name(self.workload_key), self.compute_dag.tensors)
        for tensor, name in special.items():
            value = task_input_buffers(self.workload_key).get(name)
            if value is not None:
                held[tensor.op.name] = value
        return held

    def __reduce__(self) -> Any:
        program = save_json(self.compute_dag.mod)
        return _received, (
            program,
            self.compute_dag.constants,
            self.workload_key,
            str(self.target),
            self.desc,
        )

    # -- tuning ----------------------------------------------------------------------------------
    def tune(
        self, tuning_options: TuningOptions, search_policy: Any = None, adaptive_training: bool = False
    ) -> None:
        """Search, and call the callbacks of the options with measurements.

        `adaptive_training` changes nothing: the model learns anew from everything in some milliseconds. If nothing
        could be measured, it raises with a table of the causes.
        """
        from .search_policy import SketchPolicy  # which reads records, and those are of tasks

        policy = search_policy if search_policy is not None else SketchPolicy(self)
        policy.run(tuning_options, self)

    def apply_best(
        self,
        log_file: Any,
        include_compatible: bool = False,
        layout_rewrite_option: LayoutRewriteOption | None = None,
    ) -> tuple[Schedule, list[Any]]:
        """The best schedule of a file, and the arguments: as `tvm.lower` and `tvm.build` take them.

        `include_compatible` takes records of other machines too.
        """
        return apply_record(self.task, self.best_record(log_file, include_compatible)), self.args

    @property
    def args(self) -> list[Any]:
        """What the compiled function takes, in order."""
        func = self.compute_dag.func
        return list(self.compute_dag.tensors) or [func.buffer_map.get(v, v) for v in func.params]

    def best_record(self, log_file: Any, include_compatible: bool = False) -> Record:
        """The last winner of a file, else its fastest right candidate."""
        found = History(log_file, machine="any" if include_compatible else None).find(self.task)
        if found is None:
            raise TuneError(
                f"{log_file}: there is no valid schedule for {self.workload_key} and {self.target} in it; tune it "
                "first, with measure_callbacks=[RecordToFile(…)]"
            )
        return found

    def print_best(self, log_file: Any, print_mode: str = "schedule") -> str:
        """The best of a file as text: the steps as a Python function over a tir.Schedule, or the kernels' source."""
        sch, args = self.apply_best(log_file)
        if print_mode == "schedule":
            return str(sch.trace)
        if print_mode != "cuda":
            raise ValueError(f'print_mode is "schedule" or "cuda", not {print_mode!r}')
        if print_mode != self.target.kind.name:
            raise ValueError(
                f'print_mode="cuda" is for cuda targets, and this one is {self.target.kind.name}'
            )
        return str(build(sch, args, self.target).imported_modules[0].get_source())

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key}, {self.target})"


def _received(program: str, constants: tuple[str, ...], key: str, target: str, desc: str) -> SearchTask:
    dag = None if is_registered(key) else ComputeDAG(load_json(program), constants)
    return SearchTask(compute_dag=dag, workload_key=key, target=target, desc=desc)


def create_task(
    func: Any, args: Any, target: Any, target_host: Any = None, hardware_params: HardwareParams | None = None
) -> SearchTask:
    """SearchTask, by its older name."""
    return SearchTask(
        func=func, args=args, target=target, target_host=target_host, hardware_params=hardware_params
    )


def auto_schedule(
    task: SearchTask, search_policy: Any = None, tuning_options: TuningOptions | None = None
) -> tuple[Schedule, list[Any]]:
    """A schedule of a task and its arguments: tuned as the options say, without a measurement if they say nothing."""
    options = tuning_options or TuningOptions()
    if not options.num_measure_trials:
        return zero_trial(task.task.mod, task.target, constants=task.compute_dag.constants), task.args
    from .search_policy import SketchPolicy  # as above

    policy = search_policy if search_policy is not None else SketchPolicy(task)
    return policy.run(options, task).schedule, task.args
