"""What `oclgrind` watches: kernels by hand and random schedules, or a kernel that lost a barrier.

oclgrind --data-races --log races.txt python tests/gpu/witness.py kernels 8 | without 0
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

here = Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parent / "tir" / "schedule")]

import numpy as np  # noqa: E402
from gpu_programs import PROGRAMS  # noqa: E402

import tilewright as tvm  # noqa: E402
from tilewright import tir  # noqa: E402

DEV = tvm.opencl(0)


def by_hand() -> list[str]:
    """Kernels whose threads work together."""
    names = ["row_sum", "argmax", "softmax", "matmul_tiled"]
    for name in names:
        PROGRAMS[name]().run("opencl", DEV)
    return names


def random_schedules(count: int) -> list[str]:
    """Random stages in shared memory."""
    from random_rows import rows

    for seed in range(count):
        sch = rows(seed)
        (a, out) = (
            np.random.default_rng(seed).integers(-9, 9, [int(d) for d in b.shape]).astype("int32")
            for b in sch.origin["main"].buffer_params()
        )
        given = [tvm.nd.array(x, DEV) for x in (a, out)]
        tir.interpret(sch.origin["main"], a, out)
        tvm.build(sch.mod, target="opencl")["main"](*given)
        np.testing.assert_array_equal(given[1].numpy(), out, err_msg=f"seed {seed}")
    return [f"{count} random schedules"]


def without_barrier(number: int) -> list[str]:
    """A transpose whose barrier of that number is lost; what comes out does not matter."""
    from tilewright.codegen.source.opencl import OpenCL

    made, seen = OpenCL.barrier, [-1]

    def lost(self: Any, scope: str) -> str:
        seen[0] += 1
        return ";" if seen[0] == number else made(self, scope)

    with patch.object(OpenCL, "barrier", lost):
        mod = PROGRAMS["transpose"]().build("opencl")
    program = PROGRAMS["transpose"]()
    given = [tvm.nd.array(a, DEV) for a in (*program.arrays, program.result)]
    mod(*given)
    DEV.sync()
    return [f"{seen[0]} barriers kept"]


def main(words: list[str]) -> None:
    if words[0] == "without":
        told = without_barrier(int(words[1]))
    else:
        told = by_hand() + random_schedules(int(words[1]))
    print(f"{DEV.device_name}: {', '.join(told)}")


if __name__ == "__main__":
    main(sys.argv[1:])
