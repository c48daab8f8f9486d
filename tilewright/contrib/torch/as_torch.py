"""A loop program as a PyTorch module, which takes tensors and writes its results into those it is given."""

from __future__ import annotations

from typing import Any

import torch

from ...compiler.build import build
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...runtime.ndarray import from_dlpack
from ...target import Target
from ...tune import auto_schedule


class OperatorModuleWrapper(torch.nn.Module):
    """A PrimFunc, or a module of one, that is called with tensors: inputs, then the tensors for its results.

    It is compiled as it is when it is first called, for the device of the tensors; `tune` schedules it before.
    """

    def __init__(self, module: IRModule | PrimFunc) -> None:
        super().__init__()
        self.ir_module = module
        self.rt_module: Any = None

    def tune(self, target: Any = "cpu", max_trials_global: int = 32, **options: Any) -> None:
        """Find a schedule for the program, with up to that many measurements."""
        if options:
            raise TypeError(f"tune() takes target and max_trials_global, not {', '.join(sorted(options))}")
        chosen = Target("llvm" if target == "cpu" else target)
        func = self._single()
        self.ir_module = auto_schedule(func, chosen, trials=max_trials_global).mod
        self.build(chosen)

    def _single(self) -> PrimFunc:
        if isinstance(self.ir_module, PrimFunc):
            return self.ir_module
        functions = [f for f in self.ir_module.functions.values() if isinstance(f, PrimFunc)]
        if len(functions) != 1:
            raise ValueError(f"the module has {len(functions)} functions, and one is tuned at a time")
        return functions[0]

    def script(self) -> str:
        """The program as text."""
        return str(self.ir_module.script())

    def build(self, target: Any = None) -> None:
        """Compile the program."""
        self.rt_module = build(self.ir_module, target=target)

    def forward(self, *torch_inputs: torch.Tensor) -> list[torch.Tensor]:
        if self.rt_module is None:
            kind = torch_inputs[0].device.type
            if kind not in ("cpu", "cuda"):
                raise ValueError(f"tensors are on {kind}, and programs run on cpu and cuda")
            self.build("cuda" if kind == "cuda" else None)
        for i, t in enumerate(torch_inputs):
            if not t.is_contiguous():
                raise ValueError(f"tensor {i} is not contiguous; pass t.contiguous() of it")
        self.rt_module(*[from_dlpack(t.detach()) for t in torch_inputs])
        return list(torch_inputs)


def as_torch(func: IRModule | PrimFunc) -> OperatorModuleWrapper:
    """A decorator: a PrimFunc or an IRModule as a PyTorch module.

    @as_torch
    @T.prim_func
    def add_one(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")): …

    add_one(a, b)        # b is filled
    """
    if not isinstance(func, (IRModule, PrimFunc)):
        raise TypeError(f"as_torch takes a PrimFunc or an IRModule, not {type(func).__name__}")
    return OperatorModuleWrapper(func)
