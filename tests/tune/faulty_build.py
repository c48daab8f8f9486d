"""A build function that spoils some candidates: named to workers as `faulty_build:build`.

The file that TILEWRIGHT_TEST_FAULTS names says which: the kind of fault by the key of the scheduled program.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from tilewright import tir
from tilewright.compiler.build import build as real_build
from tilewright.ir.expr import Var
from tilewright.ir.function import PrimFunc
from tilewright.ir.module import IRModule
from tilewright.ir.stmt import BufferStore, Evaluate, For, ForKind, seq
from tilewright.tune.workload import stable_key


def _refuse() -> None:
    raise RuntimeError("this cannot be built")


def _stay() -> None:
    while True:
        signal.pause()


def _swell() -> None:
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


# faults of the build itself
BUILDS = {"refuse": _refuse, "die": os.abort, "stay": _stay, "swell": _swell}


def _call(name: str, *args: Any) -> Any:
    return tir.call_extern("int32", name, *args)


def _fill(buffer: Any, value: float) -> Any:
    loops = [Var(f"i{n}", "int32") for n in range(len(buffer.shape))]
    body: Any = BufferStore(buffer, tir.const(value, buffer.dtype), loops)
    for v, extent in reversed(list(zip(loops, buffer.shape, strict=True))):
        body = For(v, tir.const(0, "int32"), extent, ForKind.SERIAL, body)
    return body


def _for_ever(body: Any) -> Any:
    v = Var("turn", "int64")
    return For(v, tir.const(0, "int64"), tir.const(1 << 62, "int64"), ForKind.SERIAL, body)


def spoiled(func: PrimFunc, kind: str) -> PrimFunc:
    """A function of the same parameters with a fault."""
    buffers = [func.buffer_map[v] for v in func.params]
    first, out = buffers[0], buffers[-1]
    size = int(out.shape[0]) * int(out.shape[1]) * 4
    much = tir.const(1 << 26, "int64")
    bodies = {
        "segfault": lambda: Evaluate(_call("raise", 11)),
        "abort": lambda: Evaluate(_call("abort")),
        "exit": lambda: Evaluate(_call("exit", 0)),
        "spin": lambda: _for_ever(Evaluate(_call("sched_yield"))),
        "hang": lambda: _for_ever(Evaluate(_call("pause"))),
        "eat": lambda: _for_ever(
            Evaluate(tir.call_extern("handle", "memset", tir.call_extern("handle", "sbrk", much), 1, much))
        ),
        "nan": lambda: _fill(out, float("nan")),
        "garbage": lambda: _fill(out, 12345.0),
        "outside": lambda: Evaluate(
            tir.call_extern("handle", "memset", out.data, 0, tir.const(size + 256, "int64"))
        ),
        "input": lambda: seq(
            Evaluate(tir.call_extern("handle", "memset", first.data, 0, tir.const(size, "int64"))),
            _fill(out, 0.0),
        ),
    }
    return PrimFunc(func.params, bodies[kind](), buffer_map=func.buffer_map, attrs={"global_symbol": "main"})


def build(mod: IRModule, target: Any = None) -> Any:
    """As `tilewright.build`, but for the candidates that are to fail."""
    faults = json.loads(Path(os.environ["TILEWRIGHT_TEST_FAULTS"]).read_text())
    kind = faults.get(stable_key(mod))
    if kind is None:
        return real_build(mod, target=target)
    if kind in BUILDS:
        BUILDS[kind]()
    (func,) = mod.functions.values()
    assert isinstance(func, PrimFunc)
    return real_build(IRModule({"main": spoiled(func, kind)}), target=target)
