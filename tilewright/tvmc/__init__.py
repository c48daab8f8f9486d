"""Whole models in four steps, in Python or on the command line.

model = tvmc.load("net.onnx", shape_dict={"data": [1, 3, 224, 224]})
records = tvmc.tune(model, target="llvm", trials=500)                     # if it is worth the time
package = tvmc.compile(model, target="llvm", tuning_records=records, package_path="net.tar")
result = tvmc.run(package, device="cpu", inputs={"data": image})
print(result)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..absent import attributes

if TYPE_CHECKING:
    from . import compiler, frontends, model, runner, shape_parser
    from .autotuner import tune_model as tune
    from .compiler import compile_model as compile
    from .frontends import load_model as load
    from .model import TVMCException, TVMCModel, TVMCPackage, TVMCResult
    from .runner import run_module as run

# Loaded when first used, so that `tilewright --help` answers at once: module and name there.
_NAMES = {
    **{name: f"model.{name}" for name in ("TVMCException", "TVMCModel", "TVMCPackage", "TVMCResult")},
    "compile": "compiler.compile_model",
    "load": "frontends.load_model",
    "run": "runner.run_module",
    "tune": "autotuner.tune_model",
}
_MODULES = ("compiler", "frontends", "model", "runner", "shape_parser")
_absent = attributes(f"{__name__.removesuffix('tvmc')}driver.tvmc")  # its classic home

__all__ = ["TVMCException", "TVMCModel", "TVMCPackage", "TVMCResult", "compile", "load", "run", "tune"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, _, own = _NAMES[name].partition(".")
        return getattr(import_module(f".{module}", __name__), own)
    return import_module(f".{name}", __name__) if name in _MODULES else _absent(name)
