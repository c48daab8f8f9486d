"""A PyTorch model compiled, and tuned on request, as a PyTorch module."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from ...meta_schedule import relay_integration
from ...relay import frontend
from ...runtime.devices import device
from ...runtime.graph_module import GraphModule
from ...runtime.ndarray import from_dlpack
from ...target import Target


class GraphExecutorFactoryWrapper(torch.nn.Module):
    """A compiled model that takes tensors and returns one, or a list of several."""

    def __init__(self, module: Any, target: Target) -> None:
        super().__init__()
        self.factory = module
        self.executor = GraphModule(module["default"](device(target.kind.name)))

    def forward(self, *args: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        for i, t in enumerate(args):
            self.executor.set_input(i, from_dlpack(t.detach().contiguous()))
        self.executor.run()
        count = self.executor.get_num_outputs()
        # the next run overwrites the results, so that each caller gets its own
        results = [torch.utils.dlpack.from_dlpack(self.executor.get_output(i)).clone() for i in range(count)]
        return results[0] if count == 1 else results


def optimize_torch(
    func: torch.nn.Module | Callable[..., Any],
    example_inputs: Any,
    *,
    max_trials_global: int = 0,
    work_dir: str | None = None,
    target: Any = "cpu",
    **options: Any,
) -> GraphExecutorFactoryWrapper:
    """Compile a module or function that torch.jit.trace can follow.

        fast = optimize_torch(net, x)                                   # zero trials: the schedules of the rules
        fast = optimize_torch(net, x, max_trials_global=500, target="cuda")
        y = fast(x)

    With `max_trials_global`, MetaSchedule tunes its kernels first; `options` are those of
    `meta_schedule.relay_integration.tune_relay`, and `work_dir` keeps its records.
    """
    chosen = Target("llvm" if target == "cpu" else target)
    given = [example_inputs] if isinstance(example_inputs, torch.Tensor) else list(example_inputs)
    traced = torch.jit.trace(func, example_inputs)
    about = [(f"inp_{i}", (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for i, x in enumerate(given)]
    mod, params = frontend.from_pytorch(traced, about)
    folder = contextlib.nullcontext(work_dir) if work_dir else tempfile.TemporaryDirectory()
    with folder as place:
        assert place is not None
        database = relay_integration.tune_relay(mod, params, chosen, place, max_trials_global, **options)
        made = relay_integration.compile_relay(database, mod, chosen, params)
    return GraphExecutorFactoryWrapper(made, chosen)
