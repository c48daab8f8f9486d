"""A build function that spoils the kernels of some candidates: named to workers as `faulty_gpu_build:build`.

The file that TILEWRIGHT_TEST_GPU_FAULTS names says how, by the number of threads in a block of the candidate.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from tilewright.compiler.build import build as real_build

FAULTS = {
    "crash": "*(volatile __global int*)0 = 1;",
    "outside": "{out}[-8] = 1.0f;",
    "nan": "{out}[0] = NAN; return;",
}


def threads_of(module: Any) -> str:
    """The threads of a block, as they stand in what the host does."""
    (program,) = module.description["programs"].values()
    step = program["body"][0]
    while step[0] != "launch":
        step = step[-1][0]
    return "x".join(map(str, step[4]))


def build(mod: Any, target: Any = None) -> Any:
    made = real_build(mod, target=target)
    if made.type_key != "host":
        return made
    faults = json.loads(Path(os.environ["TILEWRIGHT_TEST_GPU_FAULTS"]).read_text())
    kind = faults.get(threads_of(made))
    if kind is not None:
        (device,) = made.imported_modules
        head = re.search(r"__kernel void \w+\(([^)]*)\) \{", device.source)
        assert head is not None
        out = head[1].split()[-1]
        fault = FAULTS[kind].replace("{out}", out)
        device.source = device.source[: head.end()] + f"\n  {fault}" + device.source[head.end() :]
    return made
