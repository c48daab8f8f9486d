"""The debug executor: it runs a model step by step, with the times of the steps and intermediate tensors.

    m = debug_executor.create(lib.get_graph_json(), lib, tvm.cpu())
    m.set_input("data", image)
    print(m.profile())
    m.debug_get_output("fused_nn_dense_add")

A step is a kernel; its name is made of the operators in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...runtime.devices import Device
from ...runtime.graph_module import GraphModule, executor_of
from ...runtime.ndarray import NDArray, array
from ...runtime.params import save_param_dict
from ...runtime.profiler import ROUNDS, profile_model
from ...runtime.profiling import KernelProfile, Profile
from ...runtime.timing import BenchmarkResult, time_evaluator


def create(
    graph_json_str: str, libmod: Any, device: Device | list[Device], dump_root: str | None = None
) -> GraphModuleDebug:
    """A debug executor for a graph and its library; the tensors of each run are written to the folder `dump_root`."""
    return GraphModuleDebug(executor_of(graph_json_str, libmod, device), device, graph_json_str, dump_root)


class GraphModuleDebug(GraphModule):
    """An executor that runs one kernel at a time, and keeps every result."""

    def __init__(
        self, module: Any, device: Any = None, graph_json_str: str | None = None, dump_root: str | None = None
    ) -> None:
        super().__init__(module)
        self._dump_root = None if dump_root is None else Path(dump_root)
        self._kept: dict[str, list[NDArray]] = {}
        self._times: list[KernelProfile] = []

    def run(self, number: int = 1, repeat: int = 1, **input_dict: Any) -> None:
        """Run step by step, each `number` times; results are kept, times are in `get_debug_result()`."""
        if input_dict:
            self.set_input(**input_dict)
        self._kept, self._times = {}, []
        with self.module.alone():
            for step, call, outs in self.module.steps():
                seconds = self.module.seconds_of(call, max(1, number))
                self._kept[step.name] = [array(o) for o in outs]
                self._times.append(self.module.profile_of(step, seconds))
        if self._dump_root is not None:
            self._dump(self._dump_root)

    def execute(self) -> None:
        """Run the model in one piece, as without a debugger."""
        self.module.run()

    def profile(
        self, collectors: Any = None, number: int = 1, repeat: int = ROUNDS, **input_dict: Any
    ) -> Profile:
        """Run and report the time of each step, in the median of `repeat` rounds through all of them.

        Nothing is kept meanwhile: a copy between two steps would cool the caches, and let threads fall asleep.
        """
        self._kept = {}
        made = profile_model(self, input_dict, repeat, number)
        self._times = list(made.kernels)
        return made

    def run_individual(self, number: int, repeat: int = 1, *limits: Any, **options: Any) -> list[list[float]]:
        """The seconds that each step takes by itself, in order: `repeat` times the mean of `number` runs."""
        steps = range(len(self.module.info.steps))
        return [self.run_individual_node(i, number, repeat, *limits, **options).results for i in steps]

    def run_individual_node(
        self, index: int, number: int = 10, repeat: int = 1, *limits: Any, **options: Any
    ) -> BenchmarkResult:
        """The time of a single step, by its number. `limits` and `options` are the further parameters of
        `runtime.timing.time_evaluator`, by position and by name."""
        steps = list(self.module.steps())
        if not 0 <= index < len(steps):
            raise ValueError(f"there is no step number {index}; there are {len(steps)}")
        self.module.run()  # computes the inputs of the step
        device = getattr(self.module, "device", None)
        return time_evaluator(steps[index][1], device, number, repeat, *limits, **options)()

    def debug_get_output(self, node: int | str, out: Any = None) -> NDArray:
        """An intermediate result, by the name of its step (`name` or `name:1`) or the number of the step."""
        if not self._kept:
            self.run()
        name, which = node, 0
        if isinstance(node, str) and ":" in node and node not in self._kept:
            name, _, number = node.partition(":")
            which = int(number)
        names = list(self._kept)
        if isinstance(name, int):
            if not 0 <= name < len(names):
                raise ValueError(f"there is no step number {name}; there are {len(names)}")
            name = names[name]
        if name not in self._kept:
            raise ValueError(f"there is no step {name!r}; there are {', '.join(names)}")
        found = self._kept[name][which]
        return found if out is None else out.copyfrom(found)

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """The table of the last run."""
        return self.module.profile_from(tuple(self._times)).table(sort_by_time)

    def step_names(self) -> list[str]:
        """The names of the steps, in order."""
        return [s.name for s in self.module.info.steps]

    def _dump(self, root: Path) -> None:
        os.makedirs(root, exist_ok=True)
        tensors = {f"{n}:{i}": a for n, each in self._kept.items() for i, a in enumerate(each)}
        (root / "output_tensors.params").write_bytes(save_param_dict(tensors))
        (root / "times.json").write_text(self.module.profile_from(tuple(self._times)).json())
        (root / "graph.json").write_text(self.module.module.get_graph_json())
