"""Models in a pipeline: each stage runs in a thread of its own, on the next data while later stages are busy.

    run 1   │ stage 0 │ stage 1 │ stage 2 │
    run 2             │ stage 0 │ stage 1 │ stage 2 │

`pipeline_executor_build` connects and builds the stages.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.errors import TVMError
from ..runtime.devices import Device
from ..runtime.module import load_module
from ..runtime.ndarray import NDArray, array

__all__ = ["PipelineExecutorFactoryModule", "PipelineModule", "pipeline_executor_enabled"]

_END = None  # in the queue of a stage: its thread ends


def pipeline_executor_enabled() -> bool:
    """Whether pipelines can be run: always."""
    return True


class _Job:
    """One run: the inputs of the stages that are known so far, and the results of the pipeline."""

    def __init__(self, waits: list[int]) -> None:
        self.waits = waits  # for each stage, how many of the stages that it reads are not done
        self.inputs: dict[tuple[int, str], NDArray] = {}
        self.outputs: dict[int, NDArray] = {}
        self.left = len(waits)
        self.error: BaseException | None = None
        self.done = threading.Event()


class _Stages:
    """The threads of a pipeline. They know nothing of the `PipelineModule`, which ends them when it goes."""

    def __init__(self, executors: Sequence[Any], config: Mapping[str, Any]) -> None:
        self.executors = list(executors)
        rows = sorted(config["module_connection"], key=lambda row: row["mod_idx"])
        self.outputs: list[list[Any]] = [row["output"] for row in rows]
        reads: list[set[int]] = [set() for _ in rows]
        for row in rows:
            for each in row["output"]:
                for to in each["dependencies"]:
                    if "mod_idx" in to:
                        reads[to["mod_idx"]].add(row["mod_idx"])
        self.reads = reads
        self.locks = [threading.Lock() for _ in rows]
        self.counts = threading.Lock()
        self.queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in rows]
        for i, row in enumerate(rows):
            cores = _cores(str(row.get("cpu_affinity", "")))
            threading.Thread(target=self._work, args=(i, cores), name=f"stage {i}", daemon=True).start()

    def start(self, job: _Job) -> None:
        for i, reads in enumerate(self.reads):
            if not reads:
                self.queues[i].put(job)

    def close(self) -> None:
        for q in self.queues:
            q.put(_END)

    def _work(self, i: int, cores: set[int]) -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        while (job := self.queues[i].get()) is not _END:
            if job.error is None:
                try:
                    self._run(i, job)
                except BaseException as error:  # it is raised where the results are asked for
                    job.error = error
            self._done(i, job)

    def _run(self, i: int, job: _Job) -> None:
        executor = self.executors[i]
        with self.locks[i]:
            for (stage, name), value in list(job.inputs.items()):
                if stage == i:
                    executor.set_input(name, value)
            executor.run()
            for each in self.outputs[i]:
                made = executor.get_output(each["output_idx"])
                for to in each["dependencies"]:
                    copy = array(made.numpy())  # the next run writes the same memory
                    if "global_output_index" in to:
                        job.outputs[to["global_output_index"]] = copy
                    else:
                        job.inputs[to["mod_idx"], to["input_name"]] = copy

    def _done(self, i: int, job: _Job) -> None:
        with self.counts:
            job.left -= 1
            ready = []
            for j, reads in enumerate(self.reads):
                if i in reads:
                    job.waits[j] -= 1
                    if not job.waits[j]:
                        ready.append(j)
        for j in ready:
            self.queues[j].put(job)
        if not job.left:
            job.done.set()


def _cores(text: str) -> set[int]:
    """The cores of a stage, as `"0,2"` names them."""
    if not text:
        return set()
    if not hasattr(os, "sched_setaffinity"):
        raise TVMError(
            f"cpu_affinity={text!r}: threads cannot be bound to cores on this system; leave it out"
        )
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise TVMError(f"cpu_affinity={text!r}: it is numbers of cores, such as '0,2'") from None


class PipelineModule:
    """A pipeline: set inputs and run as often as you like, then get the results, in the order of the runs."""

    def __init__(self, module: PipelineExecutorFactoryModule) -> None:
        if not isinstance(module, PipelineExecutorFactoryModule):
            raise TypeError(
                f"PipelineModule takes what pipeline_executor_build.build returns, not {type(module).__name__}"
            )
        self.module = module
        config = module.mods_config
        self._stages = _Stages(module.executors(), config)
        weakref.finalize(self, self._stages.close)
        self._input_map = {
            row["global_interface_name"]: (row["mod_idx"], row["module_interface_name"])
            for row in config["input_connection"]
        }
        self._params_map = {row["global_param_name"]: row["mod_idx"] for row in config["param_connection"]}
        self._values: dict[str, NDArray] = {}
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._first: _Job | None = None
        self._runs = 0

    def run(self) -> None:
        """Start a run with the inputs as they are now; it does not wait for the results."""
        missing = [name for name in self._input_map if name not in self._values]
        if missing:
            raise TVMError(f"the pipeline has no value for its input {missing[0]!r}: set_input it first")
        job = _Job([len(reads) for reads in self._stages.reads])
        for name, value in self._values.items():
            job.inputs[self._input_map[name]] = value
        self._runs += 1
        self._jobs.put(job)
        self._stages.start(job)

    def get_output(self, synchronize: bool = True, sleep_interval: float = 0.001) -> list[NDArray]:
        """The results of the first run whose results were not taken yet.

        Without `synchronize`, an empty list if they are not there yet. Nothing is polled: `sleep_interval` is not used.
        """
        if self._first is None:
            try:
                self._first = self._jobs.get_nowait()
            except queue.Empty:
                if not synchronize:
                    return []
                raise TVMError(
                    "get_output: the results of all runs have been taken; call run() first"
                ) from None
        job = self._first
        if synchronize:
            job.done.wait()
        elif not job.done.is_set():
            return []
        self._first = None
        if job.error is not None:
            raise job.error
        return [job.outputs[i] for i in sorted(job.outputs)]

    def set_input(self, key: str, value: Any) -> None:
        """Set an input of the pipeline for the runs that follow."""
        self.get_input_pipeline_map(key)
        self._values[key] = array(value.numpy() if isinstance(value, NDArray) else value)

    def get_input(self, key: str) -> NDArray:
        """The value of an input for the next run."""
        self.get_input_pipeline_map(key)
        if key not in self._values:
            raise TVMError(f"the input {key!r} of the pipeline has no value yet")
        return self._values[key]

    def set_params(self, params_group_name: str, params_data: Mapping[str, Any]) -> None:
        """Set parameters of the stage that a group is connected to."""
        stage = self.get_params_group_pipeline_map(params_group_name)
        if not params_data:
            raise TVMError(f"set_params({params_group_name!r}): there are no parameters to set")
        with self._stages.locks[stage]:
            self._stages.executors[stage].set_input(**params_data)

    def get_input_pipeline_map(self, name: str) -> list[str]:
        """The stage that an input of the pipeline goes to, and the name that it has there."""
        if name not in self._input_map:
            raise TVMError(
                f"the pipeline has no input {name!r}; it has: {', '.join(self._input_map) or 'none'}"
            )
        stage, own = self._input_map[name]
        return [str(stage), own]

    def get_params_group_pipeline_map(self, name: str) -> int:
        """The stage that a group of parameters belongs to."""
        if name not in self._params_map:
            known = ", ".join(self._params_map) or "none"
            raise TVMError(f"the pipeline has no group of parameters {name!r}; it has: {known}")
        return int(self._params_map[name])

    @property
    def num_executing_pipeline(self) -> int:
        """How many runs were started."""
        return self._runs

    @property
    def num_outputs(self) -> int:
        rows = self.module.mods_config["module_connection"]
        dependencies = [to for row in rows for each in row["output"] for to in each["dependencies"]]
        return len({to["global_output_index"] for to in dependencies if "global_output_index" in to})

    @property
    def num_inputs(self) -> int:
        return len(self._input_map)

    @staticmethod
    def load_library(config_file_name: str) -> PipelineModule:
        """The pipeline that `export_library` wrote, from the file that it returned."""
        folder = os.path.dirname(os.path.abspath(config_file_name))
        config = _read(config_file_name)
        if not isinstance(config, dict) or not {"load_config", "pipeline_config"} <= set(config):
            raise TVMError(
                f"{config_file_name}: the file has no load_config and pipeline_config of a pipeline"
            )
        mods = {}
        for row in _read(os.path.join(folder, config["load_config"])):
            kind, number = map(int, row["dev"].split(","))
            lib = load_module(os.path.join(folder, row["lib_name"]))
            mods[row["mod_idx"]] = {"lib": lib, "dev": Device(kind, number)}
        return PipelineModule(
            PipelineExecutorFactoryModule(mods, _read(os.path.join(folder, config["pipeline_config"])))
        )


def _read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise TVMError(f"{path}: the file is damaged: {error}") from error


class PipelineExecutorFactoryModule:
    """The compiled stages of a pipeline, by number, and their connections."""

    def __init__(
        self, pipeline_mods: Mapping[int, Mapping[str, Any]], mods_config: Mapping[str, Any]
    ) -> None:
        self.pipeline_mods, self.mods_config = dict(pipeline_mods), dict(mods_config)

    def executors(self) -> list[Any]:
        """An executor for each stage, with memory of its own."""
        rows = [self.pipeline_mods[i] for i in sorted(self.pipeline_mods)]
        return [row["lib"]["default"](row["dev"]) for row in rows]

    def get_pipeline_executor_module(self) -> PipelineModule:
        """A pipeline that can be run."""
        return PipelineModule(self)

    def export_library(self, directory_path: str) -> str:
        """Write the stages and connections into a folder; returns the file for `PipelineModule.load_library`."""
        if not os.path.isdir(directory_path):
            raise TVMError(f"export_library: there is no folder {directory_path}")
        rows = []
        for i, row in sorted(self.pipeline_mods.items()):
            options = {"cc": row["export_cc"]} if row.get("export_cc") else {}
            row["lib"].export_library(
                os.path.join(directory_path, f"lib{i}.so"), fcompile=row.get("fcompile"), **options
            )
            device = row["dev"]
            rows.append(
                {"mod_idx": i, "lib_name": f"lib{i}.so", "dev": f"{device.device_type},{device.device_id}"}
            )
        names = {"load_config": rows, "pipeline_config": self.mods_config}
        for name, data in names.items():
            _write(os.path.join(directory_path, name), data)
        made = os.path.join(directory_path, "config")
        _write(made, {name: name for name in names})
        return made


def _write(path: str, data: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file)
