"""From fused functions to a compiled model: lowering, memory plan, and the code of the executors.

    program.py        a fused function as steps over tensors         memory_plan.py    their places in one arena
    lower.py          a fused function as scheduled loops            kernel.py         its machine code and cache key
    te_compiler.py    all kernels of a model, in parallel            weights.py        constants, packed
    aot.py            the function that calls them all               assemble.py       all of it as one module
    deploy.py         the interface for C programs                   vm.py             branches, loops, dynamic shapes
    tiers.py          answers by NumPy while kernels are compiled    single.py         evaluation at compile time

`relay.build` puts them together.
"""

from __future__ import annotations

from ...homes import lazily
from .executor import Executor, Runtime

__all__ = ["Executor", "Runtime"]
__getattr__ = lazily(__name__, {}, "te_compiler")
