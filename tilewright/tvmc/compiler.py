"""Compilation of a model to a package."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..codegen.llvm.objects import VERSION
from ..contrib.cc import cross_compiler
from ..files import is_stream, write_whole
from ..ir.errors import BuildError
from ..ir.transform import PassContext
from ..relay import vm
from ..relay.backend.evaluate import _needs_machine as needs_machine
from ..relay.build_module import as_target, build, optimize
from ..relay.transform import ConvertLayout
from ..relay.transform.infer_type import infer_module
from ..relay.ty import TensorType, is_dynamic, tensor_fields
from ..target import Target
from ..target.machine import cpu_features
from .errors import TVMCException
from .history import applied
from .model import TVMCModel, TVMCPackage, write_package

_FORMATS = ("so", "tar")
_LAYOUTS = ("NCHW", "NHWC")
LAYOUT_OPS = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")


def compile_model(
    tvmc_model: TVMCModel,
    target: Any = "llvm",
    opt_level: int = 3,
    executor: Any = None,
    runtime: Any = None,
    tuning_records: Any = None,
    package_path: str | PathLike[str] | None = None,
    cross: Any = None,
    cross_options: Sequence[str] | None = None,
    output_format: str = "so",
    target_host: Any = None,
    disabled_pass: Sequence[str] | None = None,
    pass_context_configs: Mapping[str, Any] | None = None,
    use_vm: bool = False,
    mod_name: str = "default",
    desired_layout: str | None = None,
    desired_layout_ops: Sequence[str] = LAYOUT_OPS,
    dump_code: str | Sequence[str] | None = None,
) -> TVMCPackage:
    """Compile a model and write it as a package, to a temporary file if there is no `package_path`.

    `output_format` is a shared library ("so"), or object files that are linked when the package is loaded ("tar").
    `cross` is a compiler that links for another machine, with `cross_options`. A model with dynamic shapes, branches or
    loops is compiled for the virtual machine, as is every model with `use_vm`. `desired_layout`, "NCHW" or "NHWC", is
    the layout of `desired_layout_ops`; inputs and results keep theirs. `tuning_records` are the result of `tvmc.tune`,
    a file, several files, or a `tune.records.history.History`. `dump_code` names code to write beside the package:
    "relay" (net.tar.relay, the imported model), "h" (the C header), "cu", "cl" or "ptx" (device code). `runtime`
    changes nothing.
    """
    dumps = _dumps(dump_code, package_path)
    chosen = as_target(target, target_host)
    _check(target, chosen, output_format, package_path)
    holder = tempfile.TemporaryDirectory(prefix="tilewright-package-")
    folder = Path(holder.name)
    path = (
        Path(package_path)
        if package_path is not None and not is_stream(package_path)
        else folder / "model.tar"
    )
    library = folder / f"mod.{output_format}"
    options = {"fcompile": cross_compiler(cross, options=list(cross_options or ()))} if cross else {}
    off, config = list(disabled_pass or ()), dict(pass_context_configs or {})
    with PassContext(opt_level, disabled_pass=off, config=config), applied(tuning_records):
        if desired_layout is not None:
            tvmc_model = in_layout(tvmc_model, desired_layout, desired_layout_ops)
        if use_vm or _asks_for_machine(executor) or wants_machine(tvmc_model, chosen):
            if dumps:
                raise TVMCException(
                    "dump_code=… is not supported for models of the virtual machine; leave it out"
                )
            exe = vm.compile(tvmc_model.mod, chosen, params=tvmc_model.params)
            exe.export_library(str(library), **options)
            write_package(path, library, _about_machine(exe, tvmc_model, chosen))
        else:
            lib = build(
                tvmc_model.mod, chosen, executor=executor, params=tvmc_model.params, mod_name=mod_name
            )
            graph, code, params = lib
            code.export_library(str(library), **options)
            write_package(path, library, _about(lib, tvmc_model, chosen), graph, params)
            _dump(dumps, path, tvmc_model, code)
    if package_path is not None and path != Path(package_path):
        write_whole(package_path, path.read_bytes())
    return TVMCPackage(path, holder=holder if path.parent == folder else None)


def _check(target: Any, chosen: Target, output_format: str, package_path: str | PathLike[str] | None) -> None:
    """Refuse impossible options before anything is compiled."""
    if output_format not in _FORMATS:
        raise TVMCException(f"output_format={output_format!r}: it must be one of {', '.join(_FORMATS)}")
    if package_path is not None:
        check_path(Path(package_path))
    if str(chosen.attrs.get("mtriple", "")).startswith("wasm"):
        raise TVMCException(
            f"target={str(target)!r}: a package contains a library, and there are none for WebAssembly"
        )


def _dump(kinds: Sequence[str], path: Path, model: TVMCModel, code: Any) -> None:
    """Write code beside a package."""
    for kind in kinds:
        text = str(model.mod) if kind == "relay" else _source(code, kind)
        write_whole(f"{path}.{kind}", text)


_DEVICE_KINDS = ("cl", "cu", "ptx")
_DUMPS = ("relay", "h", *_DEVICE_KINDS)


def _dumps(given: str | Sequence[str] | None, package_path: Any) -> list[str]:
    """The kinds of code to write beside a package."""
    kinds = given.split(",") if isinstance(given, str) else list(given or ())
    if unknown := [k for k in kinds if k not in _DUMPS]:
        raise TVMCException(
            f"dump_code={','.join(unknown)!r}: it must be of {', '.join(_DUMPS)}; kernels for CPUs are machine code, "
            "which objdump -d shows"
        )
    if kinds and (package_path is None or is_stream(package_path)):
        raise TVMCException(
            "dump_code=… writes beside the package: give the name of the package, package_path="
        )
    return kinds


def _source(code: Any, kind: str) -> str:
    """The source code of a module."""
    if kind not in _DEVICE_KINDS:
        return str(code.get_source(kind))
    if not code.imported_modules:
        raise TVMCException(f"dump_code={kind!r}: the model has no code for a device; leave it out")
    return str(code.imported_modules[0].get_source("ptx" if kind == "ptx" else ""))


def check_path(path: Path) -> None:
    """Refuse a path where no file can be written, before the work is done."""
    if path.is_dir():
        raise TVMCException(f"{path}: is a folder; give the name of a file in it, such as {path / 'net.tar'}")
    if not path.parent.is_dir():
        raise TVMCException(f"{path}: there is no folder {path.parent}; make it first")


def in_layout(model: TVMCModel, layout: str, ops: Sequence[str] = LAYOUT_OPS) -> TVMCModel:
    """A model with some operators in a layout; inputs and results keep theirs."""
    if layout not in _LAYOUTS:
        raise TVMCException(f"desired_layout={layout!r}: it must be one of {', '.join(_LAYOUTS)}")
    wanted = ConvertLayout({op: [layout, "default"] for op in ops})
    return TVMCModel(wanted(infer_module(model.mod)), model.params, model.name)


def _asks_for_machine(executor: Any) -> bool:
    return str(getattr(executor, "name", executor)) == "vm"


def wants_machine(model: TVMCModel, target: Any) -> bool:
    """Whether the model still has branches, loops or dynamic shapes after the passes."""
    mod = infer_module(model.mod)
    if any(is_dynamic(kind) for kind in model.inputs().values() if kind is not None):
        return True
    if not needs_machine(mod, mod["main"]):
        return False
    try:
        ready, _ = optimize(model.mod, target, model.params)
    except BuildError:  # a function that calls itself
        return True
    return needs_machine(ready, ready["main"])


def _about(lib: Any, model: TVMCModel, target: Any) -> dict[str, Any]:
    """The metadata of a package. It contains no time, so that equal models give equal packages."""
    info, memory = lib.model, lib.memory_report()
    return {
        "producer": VERSION,
        "name": model.name,
        "target": str(target),
        "features": _features(target),
        "executor": "graph",
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


def _about_machine(exe: Any, model: TVMCModel, target: Any) -> dict[str, Any]:
    """The metadata of a program for the virtual machine; dynamic sizes are given by name."""
    main = infer_module(model.mod)["main"]
    results = tensor_fields(main.checked_type.ret_type)
    return {
        "producer": VERSION,
        "name": model.name,
        "target": str(target),
        "features": _features(target),
        "executor": "vm",
        "inputs": [_tensor(name, kind) for name, kind in model.inputs().items()],
        "outputs": [_tensor(f"output_{i}", kind) for i, kind in enumerate(results)],
        "steps": len(exe.primitive_ops),
        "memory": {"weights": sum(c.nbytes for c in exe.constants)},
    }


# The CPU features that generated code uses, of the hundred that a CPU has.
_IN_CODE = re.compile(
    "(avx|amx|sse|ssse|fma|f16c|bmi|popcnt|lzcnt|movbe|gfni|neon|sve|dotprod|i8mm|bf16|fullfp16|lse|v$|[mafdc]$)"
)


def _features(target: Any) -> list[str]:
    """The CPU features that the code needs."""
    here = target if target.is_cpu else Target("llvm")  # of the host, for a GPU
    return sorted(f for f in cpu_features(here) if _IN_CODE.match(f))


def _tensor(name: str, kind: Any) -> dict[str, Any]:
    if not isinstance(kind, TensorType):
        return {"name": name, "dtype": str(kind), "shape": []}
    return {
        "name": name,
        "dtype": str(kind.dtype),
        "shape": [d if isinstance(d, int) else str(d).replace("T.", "") for d in kind.shape],
    }
