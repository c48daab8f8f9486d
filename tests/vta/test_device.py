"""The simulated DRAM: allocations, arrays on `ext_dev(0)`, refusals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright.runtime import devices
from tilewright.vta.device import ALIGNMENT, Dram, DramApi, dram


@pytest.fixture
def device() -> Iterator[tvm.runtime.Device]:
    before = devices._apis.get(12)
    devices.register_device_api("ext_dev", DramApi(dram()))
    yield tvm.ext_dev(0)
    if before is not None:
        devices._apis[12] = before


def test_arrays_go_there_and_back(device: tvm.runtime.Device) -> None:
    values = np.arange(12, dtype="int8").reshape(3, 4)
    allocated = dram().allocated
    there = tvm.nd.array(values, device)
    assert str(there.device) == "ext_dev(0)" and dram().allocated == allocated + 12
    assert (there.numpy() == values).all()
    second = tvm.nd.empty((3, 4), "int8", device)
    there.copyto(second)
    assert (second.numpy() == values).all()
    assert device.exist and device.total_global_memory == dram().size
    del there, second
    assert dram().allocated == allocated


def test_gaps_are_used_again() -> None:
    memory = Dram(1 << 16)
    a, b, c = memory.allocate(1), memory.allocate(5000), memory.allocate(100)
    assert (a, b, c) == (ALIGNMENT, 2 * ALIGNMENT, 4 * ALIGNMENT)
    memory.release(b)
    assert memory.allocate(9000) == 5 * ALIGNMENT
    assert memory.allocate(8192) == b
    assert memory.holds(b, 8192) and memory.holds(b + 8191, 1) and not memory.holds(b, 8193)
    assert not memory.holds(0, 1) and not memory.holds(a + 1, 1)
    assert memory.describe() == "0x1000 to 0x1001, 0x2000 to 0x4000, 0x4000 to 0x4064, 0x5000 to 0x7328"


def test_refusals() -> None:
    memory = Dram(1 << 14)
    memory.allocate(100)
    with pytest.raises(MemoryError) as full:
        memory.allocate(1 << 14)
    assert str(full.value) == (
        "the DRAM of the simulated chip has 16,384 bytes, 100 are allocated, and there is no gap of 16,384; delete arrays "
        "that are no longer used"
    )
    with pytest.raises(ValueError) as foreign:
        memory.release(5)
    assert str(foreign.value) == "address 0x5 is not the start of an allocation in the simulated DRAM"
    with pytest.raises(ValueError) as outside:
        DramApi(memory).upload(0, ALIGNMENT, 0, 101)
    assert str(outside.value) == (
        "101 bytes at 0x1000 do not lie within one allocation of the simulated DRAM; allocated are: 0x1000 to 0x1064"
    )


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20_000)), max_size=30))
def test_allocations_never_overlap(steps: list[tuple[bool, int]]) -> None:
    memory, live = Dram(1 << 17), {}
    for take, size in steps:
        if take or not live:
            try:
                at = memory.allocate(size)
            except MemoryError:
                continue
            assert at % ALIGNMENT == 0 and at not in live
            live[at] = size
        else:
            gone = sorted(live)[size % len(live)]
            memory.release(gone)
            del live[gone]
        ordered = sorted(live)
        assert all(a + live[a] <= b for a, b in zip(ordered, ordered[1:]))
