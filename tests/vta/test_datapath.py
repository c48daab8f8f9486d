"""The compiled loops of the simulator."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright.vta.config import Config
from tilewright.vta.datapath import datapath, shift_amounts

CONFIG = Config(log_uop_buff_size=6, log_inp_buff_size=9, log_wgt_buff_size=12, log_acc_buff_size=11)


@pytest.mark.parametrize(
    ("imm", "expected"),
    [(0, (0, 0)), (5, (5, 0)), (-5, (0, 5)), (31, (31, 0)), (40, (31, 0)), (-40, (0, 31))],
)
def test_a_shift_by_an_immediate(imm: int, expected: tuple[int, int]) -> None:
    assert shift_amounts(imm, "int32") == expected


@pytest.mark.slow
def test_configurations_of_one_shape_share_code() -> None:
    assert datapath(CONFIG) is datapath(Config.of({**CONFIG.keys(), "DRAM_LATENCY": 1}))


@pytest.mark.slow
def test_elements_of_wgt_are_transposed_when_they_are_loaded() -> None:
    values = np.arange(3 * 256, dtype="int16").astype("int8")
    sram = tvm.nd.array(np.zeros((16, 16, 16), "int8"))
    datapath(CONFIG)["load_wgt"](tvm.nd.array(values), sram, 1, 4, 1, 2, 0, 2)
    expected = np.zeros((16, 16, 16), "int8")
    expected[4:6] = values.reshape(3, 16, 16)[1:].transpose(0, 2, 1)
    np.testing.assert_array_equal(sram.numpy(), expected)
