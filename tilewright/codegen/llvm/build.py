"""From lowered functions to a module of machine code."""

from __future__ import annotations

from typing import Any

from ... import config
from ...ir.errors import BuildError
from ...ir.expr import IntImm
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, substitute
from ...ir.module import IRModule
from ...ir.transform import PassContext
from .engine import Machine
from .module import LLVMModule
from .module_emitter import ModuleEmitter
from .objects import VERSION, cache_of_this_build, keep_code
from .signature import external_names, signature_of


def build_llvm(mod: IRModule, target: Any) -> LLVMModule:
    """Machine code for the functions of a lowered module."""
    functions = [(gv, f) for gv, f in mod.functions.items() if isinstance(f, PrimFunc)]
    if not functions:
        raise BuildError("there is no PrimFunc in the module, so there is nothing to build")
    settings = target.llvm
    triple, cpu, features = settings.triple, settings.cpu, settings.features
    emitter = ModuleEmitter(
        triple,
        native_half=_native_half(triple, target),
        fast_math=bool(target.attrs.get("fast-math")),
        scalable=target.has_scalable_vectors,
        truncating_store_bits=target.vector_bits if target.has("avx512f") else 0,
    )
    described = []
    names = {gv: str(func.attrs.get("global_symbol", gv.name_hint)) for gv, func in functions}
    nodes = {gv: list(pre_order(func.body)) for gv, func in functions}
    called = {name for gv, _ in functions for name in external_names(nodes[gv])}
    signatures = {
        gv: signature_of(func, names[gv], called, nodes[gv], guarded=True) for gv, func in functions
    }
    emitter.symbols = {gv.name_hint: signature.symbol for gv, signature in signatures.items()}
    for gv, func in functions:
        signature = signatures[gv]
        if signature.offsets:
            func = substitute(func, {v: IntImm(v.dtype, 0) for v in signature.offsets})
        emitter.function(func, signature)
        described.append(signature.description)
    entry = described[0]["name"] if len(described) == 1 else None
    for gv, func in functions:
        if func.attrs.get("tir.is_entry_func"):
            entry = names[gv]
    metadata: dict[str, Any] = {
        "format": 1,
        "producer": VERSION,
        "target": str(target),
        "triple": triple,
        "functions": described,
        "entry": entry,
    }
    quoted = [f'"target-cpu"="{cpu}"'] if cpu else []
    quoted += [f'"target-features"="{features}"'] if features else []
    width = target.vector_bits
    if triple.startswith("x86_64") and width:
        # Without this LLVM splits the 512-bit vectors of a schedule in two on some CPUs.
        quoted.append(f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"')
    if target.arch == "aarch64" and (target.has("sve") or target.has("sme")):
        quoted.append("vscale_range(1,16)")  # SVE's vectors have 128 to 2048 bits
    text = emitter.text(metadata, " ".join(quoted))
    machine = Machine(triple, cpu, features, _level(target), settings.abi)
    made = LLVMModule(text, metadata, machine, uses_parallel=emitter.uses_parallel, native=settings.is_host)
    made.imported = tuple(emitter.imported)
    made.cache = cache_of_this_build()
    if config.debug.value >= 2:
        keep_code(made.name, text, machine, lambda: made._optimized)
    return made


def _level(target: Any) -> int:
    """The optimization level of LLVM: from the configuration, else the target, else the context."""
    if config.debug.value >= 4:
        return 0
    level = config.llvm_level.value
    if level is None:
        level = target.attrs.get("opt-level")
    return min(3, PassContext.current().opt_level + 1) if level is None else int(level)


def _native_half(triple: str, target: Any) -> bool:
    """Whether the CPU has instructions that convert between float16 and float32."""
    if triple.startswith(("x86_64", "i686", "i386")):
        return "f16c" in target.features
    return triple.startswith(("aarch64", "arm64"))
