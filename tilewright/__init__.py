"""tilewright: a deep-learning compiler in Python. `import tilewright as tvm` runs classic programs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import (  # names that are absent, and those of modules that have two, are found by import hooks
    absent,
    ir,
    moved,
)
from .homes import declare_homes, lazily
from .ir import transform
from .ir.dtype import DataType
from .ir.errors import TVMError
from .ir.module import IRModule
from .version import __version__

if TYPE_CHECKING:
    from . import arith, compiler, driver, runtime, script, target, te, tir, tune
    from .compiler.build import build
    from .compiler.lower import lower
    from .model.compiling import compile
    from .model.ort_values import IOBinding, OrtValue
    from .model.session import InferenceSession, get_available_providers, get_device
    from .model.session_options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
    from .runtime.compiled import CompiledModel, load
    from .tune import auto_schedule

declare_homes(
    arithmetic=f"{__name__}.arith",
    arrays=f"{__name__}.runtime.ndarray",
    passes=(f"{__name__}.tir.transform", f"{__name__}.relay.transform", f"{__name__}.relay.qnn"),
    kinds=f"{__name__}.backends",
    calibration=f"{__name__}.relay.backend.calibration",
    compiler=f"{__name__}.compiler",
    containers=f"{__name__}.runtime.container",
    elements=f"{__name__}.runtime.dtypes",
    expressions=f"{__name__}.ir.expr",
    functions=f"{__name__}.runtime.registry",
    graphs=f"{__name__}.relay",
    libraries=f"{__name__}.contrib.libraries",
    graph_kernels=f"{__name__}.relay.backend.single",
    graph_library=f"{__name__}.relay.library",
    graph_text=f"{__name__}.relay.text",
    patterns=f"{__name__}.relay.dataflow_pattern",
    programs=f"{__name__}.exec",
    reducers=f"{__name__}.te.reducer",
    script=f"{__name__}.script.tir",
    targets=f"{__name__}.target",
    task_inputs=f"{__name__}.auto_scheduler.measure",
    scheduler=f"{__name__}.tune.auto",
    sessions=f"{__name__}.rpc.client",
    sparse_models=f"{__name__}.relay.data_dep_optimization.models",
    programs_of_chips=f"{__name__}.vta.module",
    vta=f"{__name__}.vta.build_module",
)


# Loaded when first used, so that `import tilewright` stays quick.
_MODULES = (
    "_ffi arith auto_scheduler autotvm backends codegen compiler config contrib driver error instrument meta_schedule "
    "model parser relay rpc runtime script support target te testing tir topi tune tvmc vta"
)
_NAMES = {
    "compiler": "build lower",
    "runtime": "nd cpu cuda opencl rocm metal vulkan ext_dev device Device "
    "register_func get_global_func convert container Object "
    "context=device gpu=cuda cl=opencl",  # the names of these in programs of TVM 0.7 and before
    "runtime.dtypes": "DataTypeCode",
    "runtime.compiled": "CompiledModel load",
    "tune": "auto_schedule",
    "model.compiling": "compile",
    "model.ort_values": "IOBinding OrtValue",
    "model.session": "InferenceSession get_available_providers get_device",
    "model.session_options": "ExecutionMode GraphOptimizationLevel RunOptions SessionOptions",
    "model.quantization": "quantize",
}


def _elsewhere(name: str) -> Any:
    """Refuse a name, and say where programs of TVM before 0.7 find it now: `tvm.placeholder` is `te.placeholder`."""
    homes = () if name.startswith("_") else (import_module(f".{home}", __name__) for home in ("te", "tir"))
    home = next((h.__name__.rpartition(".")[2] for h in homes if hasattr(h, name)), None)
    now = f"; it is {home}.{name}, as in TVM since 0.7" if home else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{now}")


__getattr__ = lazily(__name__, _NAMES, _MODULES, _elsewhere)


def __dir__() -> list[str]:
    words = " ".join([_MODULES, *_NAMES.values()]).split()
    return sorted({*globals(), *(word.partition("=")[0] for word in words)})


__all__ = ["DataType", "IRModule", "TVMError", "ir", "transform"]
