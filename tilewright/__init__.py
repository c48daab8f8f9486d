"""tilewright: a deep-learning compiler in Python. `import tilewright as tvm` runs classic programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import (  # names that are absent, and those of modules that have two, are found by import hooks
    absent,
    ir,
    moved,
)
from .homes import declare_homes
from .ir import transform
from .ir.dtype import DataType
from .ir.errors import TVMError
from .ir.module import IRModule
from .version import __version__

if TYPE_CHECKING:
    from . import arith, compiler, driver, runtime, script, target, te, tir, tune
    from .compiler.build import build
    from .compiler.lower import lower
    from .tune import auto_schedule
    from .tune.auto import compile

# Loaded when first used, so that `import tilewright` stays quick.
_MODULES = (
    "arith",
    "auto_scheduler",
    "autotvm",
    "backends",
    "codegen",
    "compiler",
    "config",
    "contrib",
    "driver",
    "error",
    "instrument",
    "meta_schedule",
    "relay",
    "rpc",
    "runtime",
    "script",
    "support",
    "target",
    "te",
    "testing",
    "tir",
    "topi",
    "tune",
    "tvmc",
    "vta",
)
_NAMES = {
    "auto_schedule": "tune",
    "build": "compiler",
    "compile": "tune.auto",
    "lower": "compiler",
    "nd": "runtime",
    "cpu": "runtime",
    "cuda": "runtime",
    "opencl": "runtime",
    "rocm": "runtime",
    "metal": "runtime",
    "vulkan": "runtime",
    "device": "runtime",
    "Device": "runtime",
    "register_func": "runtime",
    "get_global_func": "runtime",
    "convert": "runtime",
    "container": "runtime",
}


declare_homes(
    passes=(f"{__name__}.tir.transform", f"{__name__}.relay.transform", f"{__name__}.relay.qnn"),
    kinds=f"{__name__}.backends",
    compiler=f"{__name__}.compiler",
    graph_kernels=f"{__name__}.relay.backend.single",
    patterns=f"{__name__}.relay.dataflow_pattern",
    programs=f"{__name__}.exec",
    reducers=f"{__name__}.te.reducer",
    script=f"{__name__}.script.tir",
    targets=f"{__name__}.target",
    scheduler=f"{__name__}.tune.auto",
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES})


__all__ = ["DataType", "IRModule", "TVMError", "ir", "transform"]
