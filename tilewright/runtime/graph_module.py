"""A compiled model with its inputs and results: `GraphModule`, and `AotModule`, which is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .devices import Device
from .errors import TVMError
from .executor import Executor, ModelModule
from .function_graph import FunctionGraph
from .json_reader import read_json
from .ndarray import NDArray
from .timing import BenchmarkResult, time_evaluator


class GraphModule:
    """An executor of a compiled model: `GraphModule(lib["default"](device))`."""

    def __init__(self, module: Any) -> None:
        if isinstance(module, ModelModule):
            module = module.create()
        if not isinstance(module, (Executor, FunctionGraph)) and not getattr(module, "is_remote", False):
            raise TypeError(f'GraphModule takes lib["default"](device), not {type(module).__name__}')
        self.module: Any = module

    def set_input(
        self, /, key: int | str | Mapping[str, Any] | None = None, value: Any = None, **params: Any
    ) -> None:
        """Copy values to inputs: one by name or number, or several by name."""
        if isinstance(key, Mapping):
            params = {**key, **params}
            key = None
        self.module.set_input(key, value, **params)

    def set_input_zero_copy(self, /, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Make the model read an input directly from an array."""
        self.module.set_input_zero_copy(key, value, **params)

    def set_output_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Make the model write a result directly to an array."""
        self.module.set_output_zero_copy(key, value)

    def run(self, /, **input_dict: Any) -> None:
        """Run the model; inputs may be given here by name."""
        self.module.run(**input_dict)

    def get_num_outputs(self) -> int:
        return self.module.get_num_outputs()

    def get_num_inputs(self) -> int:
        return self.module.get_num_inputs()

    def get_input(self, index: int | str, out: Any = None) -> NDArray:
        """An input, or a parameter by name."""
        return self.module.get_input(index, out)

    def get_input_index(self, name: str) -> int:
        return self.module.get_input_index(name)

    def get_output_index(self, name: str) -> int:
        return self.module.get_output_index(name)

    def get_input_name(self, index: int) -> str:
        return list(self.get_input_info()[0])[index]

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and types of the inputs by name."""
        return self.module.get_input_info()

    def get_output(self, index: int | str, out: Any = None) -> NDArray:
        """A result by its number or name, which the next run overwrites."""
        return self.module.get_output(index, out)

    def debug_get_output(self, node: Any, out: Any = None) -> NDArray:
        """An intermediate result, which `contrib.debugger.debug_executor` provides."""
        raise NotImplementedError("debug_get_output: use tilewright.contrib.debugger.debug_executor")

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set parameters from the output of `save_param_dict`."""
        self.module.load_params(params_bytes)

    def share_params(self, other: GraphModule, params_bytes: Any = None) -> None:
        """Use the parameters of another executor, in the same memory."""
        self.module.share_params(other.module, params_bytes)

    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """The time of the model; `end_to_end` includes copies of the inputs and the results.

        `kwargs` are inputs by name; the other options are those of `runtime.timing.time_evaluator`.
        """
        options: dict[str, Any] = {
            "number": number,
            "repeat": repeat,
            "min_repeat_ms": min_repeat_ms or 0,
            "limit_zero_time_iterations": limit_zero_time_iterations,
            "cooldown_interval_ms": cooldown_interval_ms,
            "repeats_to_cooldown": repeats_to_cooldown,
        }
        if not end_to_end:
            self.set_input(**kwargs)
            return self.module.benchmark(**options)

        def whole() -> None:
            self.set_input(**kwargs)
            self.run()
            for i in range(self.get_num_outputs()):
                self.get_output(i).numpy()

        return time_evaluator(whole, device, **options)()

    def __getitem__(self, key: str) -> Any:
        return self.module[key]


def create(graph_json_str: str, libmod: Any, device: Device | list[Device]) -> GraphModule:
    """An executor for a graph and the library that was compiled with it, or for a graph by hand and a module of the
    functions that it calls."""
    first = device[0] if isinstance(device, (list, tuple)) else device
    if isinstance(libmod, ModelModule) or not hasattr(libmod, "get_function"):
        return GraphModule(executor_of(graph_json_str, libmod, first))
    if getattr(libmod, "is_remote", False):
        try:
            model = libmod["default"]  # a model contains its graph
        except (TVMError, AttributeError):
            pass
        else:
            return GraphModule(model(first))
    return GraphModule(FunctionGraph(_table(graph_json_str), libmod, first))


def _table(graph_json_str: str) -> Any:
    try:
        return read_json(graph_json_str, "the graph", ValueError)
    except ValueError as error:
        raise TVMError(f"the graph is not JSON: {error}") from None


def executor_of(graph_json_str: str, libmod: Any, device: Device | list[Device]) -> Executor:
    if not isinstance(libmod, ModelModule):
        raise TVMError(
            f"{libmod!r} is not the library of a model: pass the result of relay.build, or of load_module for "
            "the file that it was exported to"
        )
    try:
        nodes = read_json(graph_json_str, "the graph", ValueError)["nodes"]
        called = [n["attrs"]["func_name"] for n in nodes if n["op"] == "tvm_op"]
    except (ValueError, KeyError, TypeError) as error:
        raise TVMError(f"the graph is not the JSON of a compiled model: {error!r}") from None
    own = [step.kernel or "__copy" for step in libmod.model.steps]
    if called != own:
        raise TVMError(
            f"the graph has {len(called)} steps and was not compiled with this library, which has {len(own)}"
        )
    devices = device if isinstance(device, (list, tuple)) else [device]
    return libmod.create(devices[0])
