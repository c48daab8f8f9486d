"""Processors, by LLVM: x86, ARM, RISC-V, WebAssembly and others."""

from __future__ import annotations

from typing import Any, Final

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..target import Target
from ..target.dot_products import dot_products
from ..target.kinds import CPU_CODE, Option
from ..tir import transform as T
from . import Backend, lowering_rules
from ._cpu import LOWERING

_FAST_MATH: Final = ("nnan", "ninf", "nsz", "arcp", "contract", "reassoc")


def _expand(target: Target | None) -> Pass:
    assert target is not None
    cpu = target.cpu
    made: Pass = T.LowerIntrin(
        fast_math=bool(target.attrs.get("fast-math")),
        has_fma=cpu.fma,
        avx512="avx512f" in cpu.features and cpu.arch == "x86_64",
        dots=tuple(dot_products(cpu.features)),
        simplified=True,
        rules=lowering_rules(target),
    )
    return made


def _generate(mod: IRModule, same: IRModule, target: Target) -> Any:
    from ..codegen.llvm import build_llvm

    return build_llvm(mod, target)


BACKEND: Final = Backend(
    name="llvm",
    device_type=1,
    family="cpu",
    capabilities=frozenset({"scalable_vectors", "dot_products"}),  # where the processor has them
    options={
        **CPU_CODE,
        **{
            f"fast-math-{part}": Option(
                "bool",
                "one floating point rule that may be broken",
                idle="-fast-math relaxes all rules together",
            )
            for part in _FAST_MATH
        },
        "fast-math": Option("bool", "floating point rules that may be broken"),
        "opt-level": Option("int", "how hard LLVM tries, 0 to 3", low=0),
        "cl-opt": Option(
            "list", "options for LLVM's own command line", idle="options of LLVM's command line cannot be set"
        ),
        "jit": Option(
            "text",
            "which of LLVM's compilers runs",
            choices=("mcjit", "orcjit"),
            idle="one way of loading code serves all programs",
        ),
    },
    pipeline=LOWERING._replace(instructions=(_expand,)),
    generate=_generate,
    executor="aot",
    measurable=True,
)
