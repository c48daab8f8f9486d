"""tilewright: a deep-learning compiler in Python. `import tilewright as tvm` runs classic programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from .tune import auto_schedule
    from .tune.auto import compile

declare_homes(
    passes=(f"{__name__}.tir.transform", f"{__name__}.relay.transform", f"{__name__}.relay.qnn"),
    kinds=f"{__name__}.backends",
    compiler=f"{__name__}.compiler",
    graph_kernels=f"{__name__}.relay.backend.single",
    graph_library=f"{__name__}.relay.library",
    graph_text=f"{__name__}.relay.text",
    patterns=f"{__name__}.relay.dataflow_pattern",
    programs=f"{__name__}.exec",
    reducers=f"{__name__}.te.reducer",
    script=f"{__name__}.script.tir",
    targets=f"{__name__}.target",
    scheduler=f"{__name__}.tune.auto",
    sessions=f"{__name__}.rpc.client",
    programs_of_chips=f"{__name__}.vta.module",
    vta=f"{__name__}.vta.build_module",
)


# Loaded when first used, so that `import tilewright` stays quick.
_MODULES = (
    "arith auto_scheduler autotvm backends codegen compiler config contrib driver error instrument meta_schedule relay "
    "rpc runtime script support target te testing tir topi tune tvmc vta"
)
_NAMES = {
    "compiler": "build lower",
    "runtime": "nd cpu cuda opencl rocm metal vulkan ext_dev device Device "
    "register_func get_global_func convert container",
    "tune": "auto_schedule",
    "tune.auto": "compile",
}
__getattr__ = lazily(__name__, _NAMES, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *" ".join([_MODULES, *_NAMES.values()]).split()})


__all__ = ["DataType", "IRModule", "TVMError", "ir", "transform"]
