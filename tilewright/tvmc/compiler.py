"""Compilation of a model to a package."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..codegen.llvm.engine import Machine
from ..contrib.cc import cross_compiler
from ..files import is_stream, write_whole
from ..ir.instrument import PassInstrument, PassPrintingInstrument, PassTimingInstrument
from ..ir.transform import PassContext
from ..model.building import about_model, about_program, wants_machine
from ..relay import vm
from ..relay.build_module import as_target, build
from ..relay.transform.infer_type import infer_module
from ..runtime.compiled import LIBRARIES
from ..runtime.link import find_cc
from ..runtime.package import write_package
from ..target import Target
from .composite_target import get_codegen_by_target, get_codegen_names
from .dumps import dump_kinds, dumped, save_dumps, write_offloads
from .errors import TVMCException
from .history import applied
from .model import TVMCModel, TVMCPackage
from .pass_config import parse_configs
from .pass_list import parse_pass_list_str
from .target import is_inline_json, parse_target, target_from_cli
from .transform import apply_graph_transforms

_FORMATS = ("so", "tar")


def compile_model(
    tvmc_model: TVMCModel,
    target: Any = "llvm",
    opt_level: int = 3,
    executor: Any = None,
    runtime: Any = None,
    tuning_records: Any = None,
    package_path: str | PathLike[str] | None = None,
    cross: Any = None,
    cross_options: str | Sequence[str] | None = None,
    output_format: str = "",
    dump_code: str | Sequence[str] | None = None,
    dump_offloads: str = "",
    target_host: Any = None,
    disabled_pass: str | Sequence[str] | None = None,
    pass_context_configs: Mapping[str, Any] | Sequence[str] | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    use_vm: bool = False,
    mod_name: str = "default",
    workspace_pools: Any = None,
    print_pass_times: bool = False,
    print_ir_before: Sequence[str] | None = None,
    print_ir_after: Sequence[str] | None = None,
    instruments: Sequence[PassInstrument] | None = None,
    desired_layout: str | Sequence[str] | None = None,
    desired_layout_ops: Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] | None = None,
    mixed_precision_calculation_type: str | None = None,
    mixed_precision_acc_type: str | None = None,
) -> TVMCPackage:
    """Compile a model and write it as a package, to a temporary file if there is no `package_path`.

    `target` may name code generators of others before the target itself: "dnnl, llvm". `output_format` is a shared
    library ("so"), or object files that LLVM links when the package is loaded ("tar", the default without a C
    compiler). `cross` is a compiler that links for another machine, with `cross_options`. A model with dynamic
    shapes, branches or loops is compiled for the virtual machine, as is every model with `use_vm`. `desired_layout`,
    such as "NHWC" or "NHWC:HWIO", is the layout of `desired_layout_ops`; inputs and results keep theirs, and their
    types with `mixed_precision`. `tuning_records` are the result of `tvmc.tune`, a file, several files, or a
    `tune.records.history.History`. `dump_code` names code to write beside the package: "relay" (net.tar.relay, the
    imported model), "tir", "ll" or "asm" (the kernels), "h" (the C header), "cu", "cl" or "ptx" (device code);
    `dump_offloads` is a file for the list of operators by code generator. `runtime` changes nothing, and of the
    options of `executor` only "link-params" does: weights in the library.
    """
    if workspace_pools is not None:
        raise TVMCException(
            "workspace_pools=…: memory pools are not supported; a model has one arena, which it plans"
        )
    dumps = dump_kinds(dump_code, package_path)
    chosen, extra = target_of(target, target_host, additional_target_options)
    output_format = output_format or ("so" if cross or find_cc() else "tar")
    _check(target, chosen, output_format, package_path)
    holder = tempfile.TemporaryDirectory(prefix="tilewright-package-")
    folder = Path(holder.name)
    path = (
        Path(package_path)
        if package_path is not None and not is_stream(package_path)
        else folder / "model.tar"
    )
    library = folder / f"mod.{output_format}"
    flags = cross_options.split() if isinstance(cross_options, str) else list(cross_options or ())
    options: dict[str, Any] = {"fcompile": cross_compiler(cross, options=flags)} if cross else {}
    transforms = {
        "desired_layout": desired_layout,
        "desired_layout_ops": desired_layout_ops,
        "mixed_precision": mixed_precision,
        "mixed_precision_ops": mixed_precision_ops,
        "mixed_precision_calculation_type": mixed_precision_calculation_type,
        "mixed_precision_acc_type": mixed_precision_acc_type,
    }
    watching = _instruments(print_pass_times, print_ir_before, print_ir_after, instruments)
    config = _configs(pass_context_configs) | _codegen_configs(extra)
    off = parse_pass_list_str(disabled_pass) if isinstance(disabled_pass, str) else list(disabled_pass or ())
    context = PassContext(opt_level, disabled_pass=[p for p in off if p], config=config, instruments=watching)
    with context, applied(tuning_records):
        tvmc_model = transformed(tvmc_model, transforms, extra, mod_name)
        if dump_offloads:
            write_offloads(dump_offloads, tvmc_model.mod)
        if use_vm or _asks_for_machine(executor) or wants_machine(tvmc_model.mod, chosen, tvmc_model.params):
            if others := [d for d in dumps if d != "relay"]:
                raise TVMCException(
                    f"dump_code={','.join(others)!r} is not supported for models of the virtual machine; leave it out"
                )
            code = vm.compile(tvmc_model.mod, chosen, params=tvmc_model.params)
            code.export_library(str(library), **options)
            write_package(path, library, about_program(code, tvmc_model.name, chosen))
        else:
            lib = build(
                tvmc_model.mod, chosen, executor=executor, params=tvmc_model.params, mod_name=mod_name
            )
            graph, code, params = lib
            linked = _links_params(executor)
            (lib if linked else code).export_library(str(library), **options)
            about = {**about_model(lib, tvmc_model.name, chosen), **({"link_params": True} if linked else {})}
            write_package(path, library, about, graph, {} if linked else params)
        if dumps:
            save_dumps(path.name, dumped(dumps, tvmc_model, chosen, code), path.parent)
        if print_pass_times:
            print(f"Compilation time breakdown by pass:\n{watching[0].render()}")
    if package_path is not None and path != Path(package_path):
        write_whole(package_path, path.read_bytes())
    return TVMCPackage(path, holder=holder if path.parent == folder else None)


def target_of(
    target: Any, host: Any = None, additional: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Target, list[dict[str, Any]]]:
    """The target, and the code generators that are named before it. A processor that LLVM does not know is refused."""
    chosen, extra = _parsed_target(target, host, additional)
    if chosen.is_cpu:
        settings = chosen.llvm
        Machine(settings.triple, settings.cpu, settings.features)
        if "windows" in settings.triple:
            raise TVMCException(
                f"--target {chosen}: there are no packages for Windows: the thread pool of compiled models is made for "
                "POSIX threads; compile for Linux and run the package in WSL"
            )
    return chosen, extra


def _parsed_target(
    target: Any, host: Any, additional: Mapping[str, Mapping[str, Any]] | None
) -> tuple[Target, list[dict[str, Any]]]:
    if not isinstance(target, str):
        return as_target(target, host), []
    if target.split(" ")[0].rstrip(",") == "c":
        raise TVMCException(
            "--target c: models are compiled to machine code, which a C program links with its header (--dump-code h); "
            "for another processor write llvm -mtriple=…"
        )
    names = {each["name"] for each in parse_target(target)} if not is_inline_json(target) else set()
    if not additional and not names & set(get_codegen_names()):
        return as_target(target, host), []
    found, extra = target_from_cli(target, additional)
    return as_target(found, host), extra


def _configs(given: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else parse_configs(given)


def _codegen_configs(extra: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The options of code generators, as options of PassContext."""
    keys = {each["name"]: get_codegen_by_target(each["name"])["config_key"] for each in extra}
    return {keys[e["name"]]: e["opts"] for e in extra if keys[e["name"]] and e["opts"]}


def _instruments(
    times: bool,
    before: Sequence[str] | None,
    after: Sequence[str] | None,
    given: Sequence[PassInstrument] | None,
) -> list[Any]:
    made: list[Any] = [PassTimingInstrument()] if times else []
    if before or after:
        made.append(PassPrintingInstrument(before or (), after or ()))
    return [*made, *(given or ())]


def transformed(
    model: TVMCModel, transforms: Mapping[str, Any], extra: Sequence[Mapping[str, Any]], name: str
) -> TVMCModel:
    """A model in the layouts and types that are asked for, with operators moved to the code generators of others."""
    mod, params = model.mod, model.params
    if any(transforms.values()):
        mod = apply_graph_transforms(infer_module(mod), transforms)
    for each in extra:
        mod = get_codegen_by_target(each["name"])["pass_pipeline"](mod, params, mod_name=name, **each["opts"])
    return model if mod is model.mod else TVMCModel(mod, params, model.name)


def _links_params(executor: Any) -> bool:
    return bool(getattr(executor, "attrs", {}).get("link-params"))


def _check(target: Any, chosen: Target, output_format: str, package_path: str | PathLike[str] | None) -> None:
    """Refuse impossible options before anything is compiled."""
    if output_format == "mlf":
        raise TVMCException(
            "output_format='mlf': the Model Library Format is for microcontrollers, whose C runtime is not part of "
            "tilewright; use so or tar, or lib.export_library(…) with a C header (dump_code='h')"
        )
    if output_format not in _FORMATS:
        raise TVMCException(f"output_format={output_format!r}: it must be one of {', '.join(_FORMATS)}")
    if package_path is not None:
        check_path(Path(package_path))
    if str(chosen.attrs.get("mtriple", "")).startswith("wasm"):
        raise TVMCException(
            f"target={str(target)!r}: a package contains a library, and there are none for WebAssembly"
        )


def check_path(path: Path) -> None:
    """Refuse a path where no file can be written, before the work is done."""
    if path.is_dir():
        raise TVMCException(f"{path}: is a folder; give the name of a file in it, such as {path / 'net.tar'}")
    if not path.parent.is_dir():
        raise TVMCException(f"{path}: there is no folder {path.parent}; make it first")
    if path.suffix in LIBRARIES:
        raise TVMCException(
            f"{path}: a package is an archive; name it {path.with_suffix('.tar').name}, or write the library alone "
            f'with tilewright.compile(model).save("{path.name}")'
        )


def _asks_for_machine(executor: Any) -> bool:
    return str(getattr(executor, "name", executor)) == "vm"
