"""Code of a compiled model as text, for reading: `--dump-code relay,tir,ll,asm` and `--dump-offloads`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..files import is_stream, write_whole
from ..ir.module import IRModule
from ..ir.op import Op
from ..relay.backend.lower import lower_function
from ..relay.build_module import to_compile
from ..relay.expr import Function
from ..relay.expr_functor import ExprVisitor
from ..target import Target
from .errors import TVMCException
from .model import TVMCModel

_DEVICE_KINDS: Final = ("cl", "cu", "ptx")
_KERNEL_KINDS: Final = ("tir", "ll", "asm")
DUMPS: Final = ("relay", *_KERNEL_KINDS, "h", *_DEVICE_KINDS)


def dump_kinds(given: str | Sequence[str] | None, package_path: Any) -> list[str]:
    """The kinds of code to write beside a package."""
    kinds = [k.strip() for k in given.split(",")] if isinstance(given, str) else list(given or ())
    if unknown := [k for k in kinds if k not in DUMPS]:
        raise TVMCException(f"dump_code={','.join(unknown)!r}: it must be of {', '.join(DUMPS)}")
    if kinds and package_path is not None and is_stream(package_path):
        raise TVMCException(
            "dump_code=… writes beside the package: give the name of the package, package_path="
        )
    return kinds


def save_dumps(module_name: str, dumps: Mapping[str, str], dump_root: str | os.PathLike[str] = ".") -> None:
    """Write texts by kind to `dump_root/module_name.kind`."""
    for kind, text in dumps.items():
        write_whole(Path(dump_root) / f"{module_name}.{kind}", text)


def dumped(kinds: Sequence[str], model: TVMCModel, target: Target, code: Any) -> dict[str, str]:
    """The code of a model by kind: its graph, its kernels, the C header, or the code for a device."""
    made: dict[str, str] = {}
    for kind in kinds:
        if kind in _KERNEL_KINDS and not target.has("aot_executor"):
            raise TVMCException(
                f"dump_code={kind!r} is for CPUs; for `{target}` there are {', '.join(_DEVICE_KINDS)}"
            )
        if kind == "relay":
            made[kind] = str(model.mod)
        elif kind == "tir":
            made[kind] = "\n".join(_kernels(model, target))
        else:
            made[kind] = _source(code, kind)
    return made


def _kernels(model: TVMCModel, target: Target) -> Iterator[str]:
    """The kernels of a model as scheduled loops, one after the other."""
    with target:
        _, jobs = to_compile(model.mod, target, model.params)
        for job in {job.key: job for job in jobs.values() if not job.external}.values():
            func = lower_function(job.fn, job.constants, target, job.symbol, job.plain, job.record).func
            yield IRModule({job.symbol: func}).script()


def _source(code: Any, kind: str) -> str:
    """The C header or the kernels of a module, or the source code for its device."""
    if kind not in _DEVICE_KINDS:
        return str(code.get_source(kind))
    if not code.imported_modules:
        raise TVMCException(f"dump_code={kind!r}: the model has no code for a device; leave it out")
    return str(code.imported_modules[0].get_source("ptx" if kind == "ptx" else ""))


# -- offloads -----------------------------------------------------------------------------------------
_OWN: Final = "generic"


def offloads(mod: IRModule) -> str:
    """Which operators go to which code generator, as lines; `generic` are those that are compiled here.

    Total number of operators and distribution by targets
    Total: 2
    dnnl: 1
    generic: 1

    dnnl           <-     nn.conv2d
    generic        <-     nn.softmax
    """
    found = [pair for gv in mod.functions for pair in _operators(mod[gv])]
    counts = Counter(where for where, _ in found)
    head = ["Total number of operators and distribution by targets", f"Total: {len(found)}"]
    head += [
        f"{where}: {count}" for where, count in sorted(counts.items(), key=lambda c: (c[0] == _OWN, c[0]))
    ]
    return "\n".join([*head, "", *(f"{where:<14} <-     {name}" for where, name in found), ""])


class _Operators(ExprVisitor):
    """The operators of a function and of those inside it, in order, each with the one who compiles it."""

    def __init__(self) -> None:
        super().__init__()
        self.where, self.found = _OWN, list[tuple[str, str]]()

    def visit_function(self, fn: Any) -> None:
        before = self.where
        self.where = str(fn.attrs.get("Compiler", before))
        self.visit(fn.body)
        self.where = before

    def visit_call(self, call: Any) -> None:
        super().visit_call(call)
        if isinstance(call.op, Op):
            self.found.append((self.where, call.op.name))


def _operators(func: Any) -> list[tuple[str, str]]:
    walk = _Operators()
    if isinstance(func, Function):
        walk.visit(func)
    return walk.found


def write_offloads(place: str, mod: IRModule) -> None:
    """Write `offloads` to a file, or to stderr if the place is `-`."""
    if place == "-":
        print(offloads(mod), file=sys.stderr)
    else:
        write_whole(place, offloads(mod))
