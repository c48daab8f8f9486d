"""Random tensor expressions as C source, compiled by the system's compiler, give what the interpreter says.

The printer is the one that writes CUDA and OpenCL too: types, conversions, vectors and branches are tested here,
where compiling takes no time.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import Program, programs, schedules
from test_random_programs import COMMON, compare, expected

import tilewright as tvm
from tilewright.runtime.errors import TVMError
from tilewright.runtime.launcher import NativeFunction

pytestmark = pytest.mark.needs("cc")


def run(mod: Any, arrays: list[np.ndarray]) -> None:
    """Compile the source of a module and call its function."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "program.c", Path(folder) / "program.so"
        mod.save(source)
        flags = [
            "-O1",
            "-shared",
            "-fPIC",
            "-fsanitize=undefined",
            "-fno-sanitize-recover=all",
            "-fno-sanitize=alignment",
        ]
        done = subprocess.run(
            [needs.compiler(), *flags, "-o", library, source, "-lm"], capture_output=True, text=True
        )
        if "sanitize" in done.stderr:
            done = subprocess.run(
                [needs.compiler(), "-O1", "-shared", "-fPIC", "-o", library, source, "-lm"],
                capture_output=True,
                text=True,
            )
        assert done.returncode == 0, f"{done.stderr}\n{mod.get_source()}"
        loaded = ctypes.CDLL(str(library))
        (info,) = mod.info.functions.values()
        address = ctypes.cast(getattr(loaded, info.symbol), ctypes.c_void_p).value
        assert address
        NativeFunction(info, address, loaded, lambda code: TVMError(f"code {code}"))(*arrays)


def agrees(data: Any, seed: int) -> None:
    program: Program = data.draw(programs())
    schedule = data.draw(schedules(program))
    want, got = expected(program, seed), program.arrays(seed)
    mod = tvm.build(schedule.to_prim_func(program.args()), target="c")
    run(mod, got)
    try:
        compare(got[-1], want[-1], program.output.dtype)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{mod.get_source()}") from None


@pytest.mark.slow
@settings(max_examples=6, **COMMON)
@given(st.data(), st.integers(0, 3))
def test_a_few(data: Any, seed: int) -> None:
    agrees(data, seed)


@pytest.mark.slow
@settings(max_examples=examples(40), **COMMON)
@given(st.data(), st.integers(0, 3))
def test_many(data: Any, seed: int) -> None:
    agrees(data, seed)
