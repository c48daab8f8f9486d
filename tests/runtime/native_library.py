"""Hand-written C libraries that follow the calling convention: the runtime is tested without a compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import needs

from tilewright.runtime.link import link_shared

PRELUDE = """
#include <stdint.h>
#include <string.h>
typedef union { int64_t i; double f; void* p; const char* s; } TWValue;
typedef int32_t (*packed_t)(const char*, const TWValue*, const int32_t*, int32_t, TWValue*, int32_t*);
static _Thread_local char last_error[256];
const char* __tw_last_error(void) { return last_error; }
static int32_t failed(int32_t code, const char* text) { strncpy(last_error, text, 255); return code; }
"""


def buffer(name: str, dtype: str, shape: list[Any], access: str = "rw", **more: Any) -> dict[str, Any]:
    """The description of an array parameter."""
    plain = {"kind": "buffer", "name": name, "dtype": dtype, "shape": shape, "strides": None, "align": 1}
    return plain | {"access": access, "device": "cpu", "scope": "global"} | more


def scalar(name: str, dtype: str) -> dict[str, Any]:
    """The description of a scalar parameter."""
    return {"kind": "scalar", "name": name, "dtype": dtype}


def function(
    name: str, params: list[Any], symbols: tuple[str, ...] = (), ret: str | None = None
) -> dict[str, Any]:
    """The description of a function; sizes are int32."""
    sizes = [{"name": symbol, "dtype": "int32"} for symbol in symbols]
    return {"name": name, "symbol": name, "params": params, "symbols": sizes, "ret": ret}


def metadata(functions: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The description of a library."""
    plain = {"format": 1, "producer": "tilewright 0.1.0", "target": "llvm", "triple": "x86_64-linux-gnu"}
    return plain | {"functions": functions} | more


def write_library(path: Path, code: str, described: Any) -> Path:
    """Compile C code with a description into a shared library."""
    needs.skip_without("linker")
    text = described if isinstance(described, str) else json.dumps(described)
    source = path.with_suffix(".c")
    source.write_text(f"{PRELUDE}\nconst char __tw_metadata[] = {json.dumps(text)};\n{code}")
    link_shared(path, str(source), ["-O1"])
    return path


ADD = """
int32_t add(const float* A, const float* B, float* C, int32_t m, int32_t n) {
  for (int64_t i = 0; i < (int64_t)m * n; ++i) C[i] = A[i] + B[i];
  return 0;
}
"""
ADD_INFO = function(
    "add",
    [
        buffer("A", "float32", ["m", "n"], "r"),
        buffer("B", "float32", ["m", "n"], "r"),
        buffer("C", "float32", ["m", "n"], "w"),
    ],
    ("m", "n"),
)
