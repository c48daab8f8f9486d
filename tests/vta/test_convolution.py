"""A convolution by hand: tiles, padding and two buffers, with loads that are hidden behind products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.runtime.accelerator import Address, Command
from tilewright.vta.config import Config
from tilewright.vta.device import Dram
from tilewright.vta.driver import encode_commands
from tilewright.vta.simulator import Report, Simulator

pytestmark = pytest.mark.slow

CONFIG = Config()
SIZE, TILE, BLOCKS = 28, 14, 2  # rows and columns of the image and of a tile; blocks of 16 channels


def transfer(
    memory: str, sram: int, argument: int, element: int, rows: int, columns: int, stride: int
) -> dict[str, object]:
    offset = element * CONFIG.memories[memory].element_bytes
    return {
        "memory": memory, "sram": sram, "dram": Address(argument, offset), "rows": rows, "columns": columns,
        "stride": stride,
    }  # fmt: skip


def convolution(buffers: int) -> Iterator[Command]:
    """out = max(conv(data, weight, 3x3, padding 1) >> 8, 0) in tiles; `buffers` of inp and wgt are filled in turn."""
    step = 0
    for y in range(0, SIZE, TILE):
        for x in range(0, SIZE, TILE):
            for block in range(BLOCKS):
                inp, wgt = step % buffers * 256, step % buffers * 9 * BLOCKS
                pad = [int(edge) for edge in (y == 0, y + TILE == SIZE, x == 0, x + TILE == SIZE)]
                rows, columns = TILE + 2 - pad[0] - pad[1], TILE + 2 - pad[2] - pad[3]
                first = (block * SIZE + max(y - 1, 0)) * SIZE + max(x - 1, 0)
                free = (2,) if step >= buffers else ()
                image = transfer("inp", inp, 0, first, rows, columns, SIZE)
                yield Command(1, "load", {**image, "pad": tuple(pad)}, free)
                yield Command(1, "load", transfer("wgt", wgt, 1, block * 9, BLOCKS, 9, BLOCKS * 9), (), (2,))
                if block == 0:
                    loops: tuple[tuple[int, ...], ...] = ((BLOCKS * TILE * TILE, 1, 0, 0),)
                    yield Command(2, "gemm", {"reset": True, "acc": 0, "loops": loops}, (3,) if step else ())
                loops = ((BLOCKS, 196, 0, 9), (14, 14, 16, 0), (14, 1, 1, 0), (3, 0, 16, 3), (3, 0, 1, 1))
                yield Command(2, "gemm", {"acc": 0, "inp": inp, "wgt": wgt, "loops": loops}, (1,), (1,))
                step += 1
            every = {"dst": 0, "src": 0, "loops": ((BLOCKS * TILE * TILE, 1, 1),)}
            yield Command(2, "alu", {"op": "shr", "imm": 8, **every})
            yield Command(2, "alu", {"op": "max", "imm": 0, **every}, (), (3,))
            for block in range(BLOCKS):
                at = (block * SIZE + y) * SIZE + x
                yield Command(
                    3, "store", transfer("out", block * 196, 2, at, TILE, TILE, SIZE),
                    (2,) if block == 0 else (), (2,) if block == BLOCKS - 1 else (),
                )  # fmt: skip


def run(
    buffers: int,
) -> tuple[
    Report, np.ndarray[tuple[int, ...], np.dtype[np.int8]], np.ndarray[tuple[int, ...], np.dtype[np.int64]]
]:
    rng = np.random.default_rng(0)
    data = rng.integers(-64, 64, (BLOCKS, SIZE, SIZE, 16)).astype("int8")
    weight = rng.integers(-64, 64, (BLOCKS, BLOCKS, 3, 3, 16, 16)).astype("int8")
    expected = np.zeros((BLOCKS, SIZE, SIZE, 16), "int64")
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0))).astype("int64")
    for o, i, dy, dx in np.ndindex(BLOCKS, BLOCKS, 3, 3):
        expected[o] += padded[i, dy : dy + SIZE, dx : dx + SIZE] @ weight[o, i, dy, dx].astype("int64").T
    sim = Simulator(CONFIG, Dram(1 << 20))
    addresses = [sim.dram.allocate(n) for n in (data.nbytes, weight.nbytes, data.nbytes)]
    sim.chip.write(addresses[0], data.tobytes())
    sim.chip.write(addresses[1], weight.tobytes())
    report = sim.run(encode_commands(convolution(buffers), CONFIG), addresses)
    out = sim.dram.bytes[addresses[2] :][: data.nbytes].view("int8").reshape(data.shape)
    return report, out, np.maximum(expected >> 8, 0)


def test_two_buffers_hide_the_loads() -> None:
    cycles = {}
    for buffers in (1, 2):
        report, out, expected = run(buffers)
        np.testing.assert_array_equal(out, expected.astype("int8"))
        figures = report.statistics.table()
        assert figures["gemm_counter"] == BLOCKS * BLOCKS * 9 * SIZE * SIZE
        cycles[buffers] = report.cycles
        waits = figures["stall_cycles"]["compute"].get("token from load", 0)
        assert waits < 1000 if buffers == 2 else waits > 5000
    assert cycles[2] < 0.9 * cycles[1]
