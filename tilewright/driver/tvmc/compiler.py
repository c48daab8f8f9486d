"""From a model to a package."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ...codegen.llvm.objects import VERSION
from ...contrib.cc import cross_compiler
from ...ir.transform import PassContext
from ...relay.build_module import as_target, build
from ...relay.ty import is_dynamic
from .model import TVMCException, TVMCModel, TVMCPackage, write_package

__all__ = ["compile_model"]

_FORMATS = ("so", "tar")


def compile_model(
    tvmc_model: TVMCModel,
    target: Any = "llvm",
    opt_level: int = 3,
    executor: Any = None,
    tuning_records: Any = None,
    package_path: str | PathLike[str] | None = None,
    cross: Any = None,
    cross_options: Sequence[str] | None = None,
    output_format: str = "so",
    disabled_pass: Sequence[str] | None = None,
    pass_context_configs: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> TVMCPackage:
    """Compile a model and write it as a package, to a file of its own where no path is given.

    `output_format` is what the code lies in: a shared library ("so"), or object files that are linked when the
    package is loaded ("tar"). `cross` is a compiler that links for another machine.
    """
    if output_format not in _FORMATS:
        raise TVMCException(f"output_format={output_format!r}: it must be one of {', '.join(_FORMATS)}")
    if tuning_records is not None:
        raise TVMCException(
            f"tuning_records={tuning_records!r}: records cannot be used yet; compile without them"
        )
    _refuse_open_sizes(tvmc_model)
    if package_path is not None and not Path(package_path).parent.is_dir():
        raise TVMCException(f"{package_path}: there is no folder {Path(package_path).parent}; make it first")
    chosen = as_target(target)
    with PassContext(
        opt_level, disabled_pass=list(disabled_pass or ()), config=dict(pass_context_configs or {})
    ):
        lib = build(tvmc_model.mod, chosen, executor=executor, params=tvmc_model.params, mod_name=mod_name)
    holder = tempfile.TemporaryDirectory(prefix="tilewright-package-")
    folder = Path(holder.name)
    path = folder / "model.tar" if package_path is None else Path(package_path)
    library = folder / f"mod.{output_format}"
    options = {"fcompile": cross_compiler(cross, options=list(cross_options or ()))} if cross else {}
    graph, code, params = lib
    code.export_library(str(library), **options)
    write_package(path, library, graph, params, _about(lib, tvmc_model, chosen))
    return TVMCPackage(path, holder=holder if package_path is None else None)


def _about(lib: Any, model: TVMCModel, target: Any) -> dict[str, Any]:
    """What a package says about itself. It names no time, so that equal models give equal packages."""
    info, memory = lib.model, lib.memory_report()
    return {
        "producer": VERSION,
        "name": model.name,
        "target": str(target),
        "inputs": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in info.inputs],
        "outputs": [
            {"name": f"output_{i}", "dtype": t.dtype, "shape": list(t.shape)}
            for i, t in enumerate(info.outputs)
        ],
        "steps": len(info.steps),
        "memory": {
            "weights": memory.weights,
            "arena": memory.arena,
            "inputs": memory.inputs,
            "outputs": memory.outputs,
            "peak": memory.peak,
        },
    }


def _refuse_open_sizes(model: TVMCModel) -> None:
    for name, kind in model.inputs().items():
        if kind is not None and is_dynamic(kind):
            raise TVMCException(
                f"{model.name}: input {name!r} has type {kind}, with sizes that are not known, and a package holds a "
                f"model of fixed sizes: load it with shape_dict={{{name!r}: [1, …]}} "
                f'(--shapes "{name}:[1,…]" on the command line), or run it with relay.create_executor("vm", …)'
            )
