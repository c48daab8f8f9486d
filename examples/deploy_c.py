"""Leaving Python: a library with a C header, called from a C program that knows nothing of tilewright.

The library carries its kernels and its thread pool. It needs libc and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tilewright as tvm
from tilewright import te

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "saxpy.h"

int main(void) {
    int32_t n = 1000000;
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y), *z = malloc(n * sizeof *z);
    for (int32_t i = 0; i < n; ++i) { x[i] = (float)i; y[i] = 0.5f; }
    if (saxpy(2.0f, x, y, z, n) != 0) { fprintf(stderr, "%s\n", __tw_last_error()); return 1; }
    printf("z[0] = %g, z[1] = %g, z[999999] = %g\n", z[0], z[1], z[999999]);
    return z[999999] != 2.0f * 999999 + 0.5f;
}
"""


def saxpy() -> tvm.runtime.Module:
    """z = a x + y for vectors of any length, on all cores."""
    n, a = te.size_var("n"), te.var("a", dtype="float32")
    X, Y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
    Z = te.compute((n,), lambda i: a * X[i] + Y[i], name="Z")
    s = te.create_schedule(Z.op)
    outer, inner = s[Z].split(Z.op.axis[0], factor=8192)
    _, lanes = s[Z].split(inner, factor=16)
    s[Z].parallel(outer)
    s[Z].vectorize(lanes)
    return tvm.build(s, [a, X, Y, Z], target="llvm", name="saxpy")


def c_compiler() -> list[str] | None:
    """The system's C compiler, or the one that comes with the ziglang package."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    try:
        import ziglang  # noqa: F401
    except ImportError:
        return None
    return [sys.executable, "-m", "ziglang", "cc"]


def main() -> None:
    compiler = c_compiler()
    if compiler is None:
        print("There is no C compiler here. Install one, or `pip install ziglang`, and run this again.")
        return
    module = saxpy()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = module.export_library(folder / "saxpy.so")
        print(f"saxpy.so has {os.path.getsize(library)} bytes. Its header says:\n")
        header = (folder / "saxpy.h").read_text()
        print(header[header.index("/* saxpy\n") : header.index("#ifdef __cplusplus\n}")])
        (folder / "main.c").write_text(PROGRAM)
        subprocess.run(
            [*compiler, "main.c", "saxpy.so", "-Wl,-rpath,.", "-o", "main"], cwd=folder, check=True
        )
        for threads in ("1", "2"):
            out = subprocess.run(
                ["./main"],
                cwd=folder,
                env={**os.environ, "TILEWRIGHT_NUM_THREADS": threads},
                check=True,
                capture_output=True,
                text=True,
            )
            print(f"from C, with {threads} thread{'s' if threads != '1' else ''}: {out.stdout.strip()}")

        again = tvm.runtime.load_module(library)
        print(f"the same file, loaded by Python: {again}")


if __name__ == "__main__":
    main()
