"""Tasks: a program and a target to tune it for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from ..compiler.build import build
from ..forks import cached_property
from ..ir.equal import structural_equal
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
from .loop_state import State
from .measure import TASK_INPUT_BUFFER_TABLE as TASK_INPUT_BUFFER_TABLE
from .measure import builder_of, register_task_input_buffer, runner_of, special_inputs, task_input_buffers
from .workload_registry import WORKLOAD_FUNC_REGISTRY, is_registered, make_workload_key, workload_func_name


@dataclass(repr=False, unsafe_hash=True)
class HardwareParams:
    """Figures of the hardware; by default those of `target`, and 0 if they are unknown.

    The search takes its figures from the target itself (`-num-cores=4`, `-mcpu=…`), so that records for a target were
    found with its figures.
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: InitVar[Any] = None
    target_host: InitVar[Any] = None

    def __post_init__(self, target: Any, target_host: Any) -> None:
        known = _figures(Target(target, host=target_host)) if target is not None else {}
        for name, given in list(vars(self).items()):
            setattr(self, name, known.get(name, 0) if given is None else int(given))

    def __str__(self) -> str:
        lines = "\n".join(f"  {name}: {value}" for name, value in vars(self).items())
        return f"HardwareParams:\n{lines}"

    __repr__ = __str__


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
    """Options of tuning: the number of trials, early stopping, the builder, the runner and callbacks.

    With `early_stopping`, tuning ends after that many trials without an improvement; without it, when little gain is
    expected. At most `num_measures_per_round` candidates, and at most 16, are measured before the model learns.
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
                "TuningOptions: num_measure_trials must be at least 0, and num_measures_per_round at least 1"
            )
        self.num_measure_trials = int(num_measure_trials)
        self.early_stopping = None if early_stopping in (None, -1) else int(early_stopping or 0)
        self.num_measures_per_round = int(num_measures_per_round)
        self.verbose = int(verbose)
        self.builder, self.runner = builder_of(builder), runner_of(runner)
        self.measure_callbacks = list(measure_callbacks or ())


class SearchTask:
    """A program to tune for a target, given by a registered function and its arguments, a ComputeDAG, or a key.

    `task_inputs` are values for parameters by name, instead of random ones: arrays, or the names of registered ones.
    `desc` is the name of the task in tables.
    """

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
        known = WORKLOAD_FUNC_REGISTRY.get(self.workload_key)
        # the key alone identifies the program from now on
        if not is_registered(self.workload_key) or (
            compute_dag is not None and isinstance(known, ComputeDAG)
        ):
            WORKLOAD_FUNC_REGISTRY[self.workload_key] = self.compute_dag
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
    def named(record: Any) -> SearchTask:
        """The task of a line of TVM's own logs. If its program is not registered here, it has only the fields of the
        line."""
        layout = LayoutRewriteOption(record.layout_rewrite)
        hardware = HardwareParams(*record.hardware) if record.hardware else None
        if is_registered(record.workload_key):
            with warnings.catch_warnings():  # the figures are those of the machine that was tuned
                warnings.simplefilter("ignore", RuntimeWarning)
                return SearchTask(
                    workload_key=record.workload_key,
                    target=record.target,
                    target_host=record.host or None,
                    hardware_params=hardware,
                    layout_rewrite_option=layout,
                    task_inputs=list(record.input_names) or None,
                )
        made = object.__new__(SearchTask)
        made.workload_key, made.desc = record.workload_key, ""
        made.target = Target(record.target, host=record.host or None)
        made.target_host, made.layout_rewrite_option = made.target.host, layout
        made.hardware_params = hardware or HardwareParams(target=made.target)
        made.task_input_names = list(record.input_names)
        return made

    @staticmethod
    def of(task: Task, desc: str = "", hardware_params: HardwareParams | None = None) -> SearchTask:
        """The search task of a task of the engine, such as one of a model."""
        dag = ComputeDAG(task.mod, task.constants)
        made = SearchTask(compute_dag=dag, target=task.target, hardware_params=hardware_params, desc=desc)
        made.task = task
        return made

    def _check_hardware(self, given: HardwareParams | None) -> None:
        if given is None or self.target.is_gpu or given.num_cores in (0, self.target.cpu.num_cores):
            return
        warnings.warn(
            f"hardware_params say {given.num_cores} cores, and the search uses the {self.target.cpu.num_cores} cores "
            f"of the target; give them in the target: {self.target.kind.name} -num-cores={given.num_cores}",
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
        """The task of the engine."""
        return Task(self.compute_dag.mod, self.target, self.compute_dag.constants, inputs=self._inputs())

    def _inputs(self) -> dict[str, Any]:
        """The registered values of parameters, by name."""
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
        """Search with a policy (by default a `SketchPolicy`), and call the callbacks of the options with measurements.

        `adaptive_training` changes nothing: training the model on all records takes some milliseconds. If nothing could
        be measured, TuneError is raised, with a table of the causes.
        """
        self._searched(tuning_options, search_policy)

    def _searched(self, options: TuningOptions, policy: Any) -> State:
        from .search_policy import SketchPolicy  # which imports this module

        chosen = policy if policy is not None else SketchPolicy(self)
        found: State = chosen.run(options, self)
        return found

    def state_of(self, record: Record) -> State:
        """The state of a record; its schedule is made on demand."""
        origin = ("decisions", record.decisions)
        if record.decisions is None and record.origin != "trial" and record.trace is not None:
            origin = ("trace", record.trace)
        return State.found(self.compute_dag, lambda: apply_record(self.task, record), origin)

    def apply_best(
        self,
        log_file: Any,
        include_compatible: bool = False,
        layout_rewrite_option: LayoutRewriteOption | None = None,
    ) -> tuple[Schedule, list[Any]]:
        """The best schedule in a file of records, and the arguments, for `tvm.lower` and `tvm.build`.

        `include_compatible` includes the records of other machines.
        """
        return apply_record(self.task, self.best_record(log_file, include_compatible)), self.args

    @property
    def args(self) -> list[Any]:
        """The arguments of the compiled function, in order."""
        func = self.compute_dag.func
        return list(self.compute_dag.tensors) or [func.buffer_map.get(v, v) for v in func.params]

    def best_record(self, log_file: Any, include_compatible: bool = False) -> Record:
        """The best record in a file: the last winner, else the fastest correct candidate."""
        from .measure_record import source_of  # which imports this module

        machine = "any" if include_compatible else None
        source = source_of(log_file) if isinstance(log_file, (str, os.PathLike)) else log_file
        found = History(source, machine=machine).find(self.task)
        if found is None:
            raise TuneError(
                f"{log_file}: it has no valid schedule for {self.workload_key} and {self.target}; tune it first, with "
                "measure_callbacks=[RecordToFile(…)]"
            )
        return found

    def _steps_of_classic(self, log_file: Any, sch: Schedule) -> str:
        """The code of the steps of TVM's own log that give a schedule; empty if it has none."""
        from .measure_record import load_records

        for inp, res in load_records(log_file) if isinstance(log_file, (str, os.PathLike)) else ():
            if inp.state.by_hand and not res.error_no and inp.task.workload_key == self.workload_key:
                if structural_equal(inp.state.schedule.mod, sch.mod):
                    return self.compute_dag.print_python_code_from_state(inp.state)
        return ""

    def print_best(self, log_file: Any, print_mode: str = "schedule") -> str:
        """The best schedule in a file as text: its steps ("schedule"), or the source of its kernels ("cuda").

        The steps are Python code: for a te.Schedule `s` if they are from TVM's own log, else for a tir.Schedule `sch`.
        """
        sch, args = self.apply_best(log_file)
        if print_mode == "schedule":
            return self._steps_of_classic(log_file, sch) or str(sch.trace)
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
    """`SearchTask` under its older name."""
    return SearchTask(
        func=func, args=args, target=target, target_host=target_host, hardware_params=hardware_params
    )


def auto_schedule(
    task: SearchTask, search_policy: Any = None, tuning_options: TuningOptions | None = None
) -> tuple[Schedule, list[Any]]:
    """The schedule of a task, and its arguments: tuned by the options, or without measurements if they ask for none."""
    options = tuning_options or TuningOptions()
    if not options.num_measure_trials:
        return zero_trial(task.task.mod, task.target, constants=task.compute_dag.constants), task.args
    return task._searched(options, search_policy).schedule, task.args
