"""Whole models in four steps, in Python or on the command line.

model = tvmc.load("net.onnx", shape_dict={"data": [1, 3, 224, 224]})
records = tvmc.tune(model, target="llvm", trials=500)                     # if it is worth the time
package = tvmc.compile(model, target="llvm", tuning_records=records, package_path="net.tar")
result = tvmc.run(package, device="cpu", inputs={"data": image})
print(result)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..absent import attributes
from ..homes import lazily

if TYPE_CHECKING:
    from . import (
        autotuner,
        compiler,
        composite_target,
        frontends,
        model,
        pass_config,
        pass_list,
        result_utils,
        runner,
        shape_parser,
        target,
        tracker,
        transform,
    )
    from .autotuner import tune_model as tune
    from .compiler import compile_model as compile
    from .errors import TVMCException, TVMCImportError
    from .frontends import load_model as load
    from .model import TVMCModel, TVMCPackage, TVMCResult
    from .runner import run_module as run

__all__ = [
    "TVMCException",
    "TVMCImportError",
    "TVMCModel",
    "TVMCPackage",
    "TVMCResult",
    "compile",
    "load",
    "run",
    "tune",
]

# Loaded when first used, so that `tilewright --help` answers at once.
__getattr__ = lazily(
    __name__,
    {
        "errors": "TVMCException TVMCImportError",
        "model": "TVMCModel TVMCPackage TVMCResult",
        "compiler": "compile=compile_model",
        "frontends": "load=load_model",
        "runner": "run=run_module",
        "autotuner": "tune=tune_model",
    },
    "autotuner compiler composite_target frontends model pass_config pass_list result_utils runner shape_parser target "
    "tracker transform",
    attributes(f"{__name__.removesuffix('tvmc')}driver.tvmc"),  # its classic home
)
