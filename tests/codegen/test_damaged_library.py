"""A library whose bytes have changed since it was exported is refused before the system's linker sees it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.runtime import LoadError, load_module

# Loads each file in a process of its own: 10 is a LoadError, 0 a library that loads.
LOADER = """
import os, sys
from tilewright.runtime import LoadError, load_module
for file in sys.stdin.read().split():
    if (pid := os.fork()) == 0:
        try:
            load_module(file)
        except LoadError:
            os._exit(10)
        except BaseException:
            os._exit(11)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: te.exp(A[i]), name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    path = tmp_path_factory.mktemp("whole") / "f.so"
    tvm.build(s, [A, B], name="f").export_library(path)
    return path


def flipped(data: bytes, at: int, bit: int) -> bytes:
    made = bytearray(data)
    made[at] ^= 1 << bit
    return bytes(made)


def results(files: list[Path]) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", LOADER], input="\n".join(map(str, files)), capture_output=True, text=True
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(library: Path, tmp_path: Path) -> None:
    data, dice, files = library.read_bytes(), random.Random(7), []
    places = [dice.randrange(64) for _ in range(20)] + [dice.randrange(0x400) for _ in range(20)]
    places += [dice.randrange(len(data)) for _ in range(30)]
    places += [len(data) - 1 - dice.randrange(48) for _ in range(10)]  # the seal itself
    for i, at in enumerate(places):
        files.append(tmp_path / f"{i}.so")
        files[-1].write_bytes(flipped(data, at, dice.randrange(8)))
    assert results(files) == [10] * len(files)


def test_the_error_says_so(library: Path, tmp_path: Path) -> None:
    (tmp_path / "f.so").write_bytes(flipped(library.read_bytes(), 5000, 0))
    with pytest.raises(
        LoadError, match=r"f\.so: the file is damaged: its content does not match the checksum"
    ):
        load_module(tmp_path / "f.so")


def test_a_whole_one_still_loads(library: Path, tmp_path: Path) -> None:
    shutil.copy(library, tmp_path / "g.so")
    x, y = np.zeros(8, "float32"), np.empty(8, "float32")
    load_module(tmp_path / "g.so")["f"](x, y)
    assert (y == 1).all()


@pytest.mark.slow
@pytest.mark.needs("strip")
def test_a_library_without_seal_is_looked_at_more_closely(library: Path, tmp_path: Path) -> None:
    subprocess.run(["strip", "-o", str(tmp_path / "s.so"), str(library)], check=True)
    data = (tmp_path / "s.so").read_bytes()
    load_module(tmp_path / "s.so")
    count = int.from_bytes(data[56:58], "little")
    files = []
    for i in range(count):  # offsets, addresses and sizes of the segments
        for field, byte in ((8, 6), (16, 6), (32, 5), (40, 5)):
            files.append(tmp_path / f"{i}_{field}.so")
            files[-1].write_bytes(flipped(data, 64 + 56 * i + field + byte, 3))
    for field in (32, 54, 55, 56):  # where the program headers are, their size and number
        files.append(tmp_path / f"head_{field}.so")
        files[-1].write_bytes(flipped(data, field, 6))
    found = results(files)
    assert len(found) == len(files) and set(found) <= {0, 10}
    assert found.count(10) > len(found) // 2
