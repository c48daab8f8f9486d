"""Configurations of the example chip: the classic keys, the numbers that follow, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.vta.config import Config, current_config
from tilewright.vta.errors import ConfigError

CLASSIC: dict[str, Any] = {
    "TARGET": "sim",
    "HW_VER": "0.0.2",
    "LOG_INP_WIDTH": 3,
    "LOG_WGT_WIDTH": 3,
    "LOG_ACC_WIDTH": 5,
    "LOG_BATCH": 0,
    "LOG_BLOCK": 4,
    "LOG_UOP_BUFF_SIZE": 15,
    "LOG_INP_BUFF_SIZE": 15,
    "LOG_WGT_BUFF_SIZE": 18,
    "LOG_ACC_BUFF_SIZE": 17,
}


def test_the_classic_keys_are_the_default() -> None:
    assert Config.of(CLASSIC) == Config()


def test_numbers_that_follow() -> None:
    config = Config()
    assert (config.batch, config.block_in, config.block_out) == (1, 16, 16)
    assert {m.name: (m.dtype, m.shape, m.depth, m.element_bytes) for m in config.memories.values()} == {
        "uop": ("uint32", (), 8192, 4),
        "wgt": ("int8", (16, 16), 1024, 256),
        "inp": ("int8", (1, 16), 2048, 16),
        "acc": ("int32", (1, 16), 2048, 64),
        "out": ("int8", (1, 16), 2048, 16),
        "acc8": ("int8", (1, 16), 2048, 16),
    }


def test_keys_are_written_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(log_block_in=3, log_batch=1, dram_latency=100, log_inp_buff_size=14)
    assert Config.of(config.keys()) == config
    path = tmp_path / "chip.json"
    path.write_text(json.dumps(config.keys()))
    monkeypatch.setenv("VTA_CONFIG", str(path))
    assert current_config() == config
    monkeypatch.delenv("VTA_CONFIG")
    assert current_config() == Config()


def test_the_fingerprint_is_that_of_the_encoding_and_not_of_the_timing() -> None:
    assert Config(dram_latency=1, target="tsim").fingerprint == Config().fingerprint
    assert Config(log_batch=1).fingerprint != Config().fingerprint


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"LOG_INP_BUF_SIZE": 3},
            "configuration: unknown key 'LOG_INP_BUF_SIZE'; did you mean LOG_INP_BUFF_SIZE or LOG_UOP_BUFF_SIZE or "
            "LOG_WGT_BUFF_SIZE? Known are: ",
        ),
        (
            {"LOG_BATCH": None},
            "configuration: the key LOG_BATCH is missing; add it (rows of the product of an element of inp and one of "
            "wgt, as a logarithm to base 2)",
        ),
        ({"TARGET": None}, "configuration: the key TARGET is missing; add it"),
        ({"HW_VER": 2}, "configuration: HW_VER=2: a text is expected, such as '0.0.2'"),
        (
            {"LOG_BATCH": "0"},
            "configuration: LOG_BATCH='0': a whole number from 0 to 10 is expected (rows of the product of an element "
            "of inp and one of wgt, as a logarithm to base 2)",
        ),
        (
            {"DRAM_LATENCY": -1},
            "configuration: DRAM_LATENCY=-1: a whole number from 0 to 100000 is expected (cycles from a request to the "
            "first byte)",
        ),
        (
            {"LOG_BLOCK": "four"},
            "configuration: LOG_BLOCK='four': a whole number from 0 to 10 is expected (numbers that a product sums up, and "
            "its columns, as a logarithm to base 2)",
        ),
        (
            {"LOG_BLOCK": None},
            "configuration: the key LOG_BLOCK is missing; add it (numbers that a product sums up, and its columns, as a "
            "logarithm to base 2)",
        ),
        (
            {"LOG_BLOCK_IN": 5},
            "configuration: LOG_BLOCK_IN=5 contradicts LOG_BLOCK=4; give LOG_BLOCK, or LOG_BLOCK_IN and LOG_BLOCK_OUT",
        ),
        (
            {"LOG_OUT_WIDTH": 5},
            "configuration: LOG_OUT_WIDTH=5 contradicts the other keys, by which it is 3; leave it out",
        ),
        (
            {"LOG_INP_WIDTH": 2},
            "configuration: LOG_INP_WIDTH=2: numbers of 4 bits have no data type in DRAM; use 3, 4 or 5, for 8, 16 or 32 "
            "bits",
        ),
        (
            {"LOG_ACC_WIDTH": 3, "LOG_WGT_WIDTH": 4},
            "configuration: LOG_WGT_WIDTH=4 is greater than LOG_ACC_WIDTH=3: an accumulator cannot hold a single "
            "product; increase LOG_ACC_WIDTH",
        ),
        (
            {"LOG_WGT_BUFF_SIZE": 7},
            "configuration: LOG_WGT_BUFF_SIZE=7: the buffer has 128 bytes and an element of it 256; LOG_WGT_BUFF_SIZE "
            "must be at least 8",
        ),
        (
            {"LOG_UOP_BUFF_SIZE": 16},
            "configuration: the instruction GEMM needs 129 bits and has 128: the indices of the buffers are too wide "
            "(elements: uop 16384, inp 2048, wgt 1024, acc 2048); decrease LOG_UOP_BUFF_SIZE, LOG_INP_BUFF_SIZE, "
            "LOG_WGT_BUFF_SIZE or LOG_ACC_BUFF_SIZE, or increase LOG_BLOCK",
        ),
        (
            {"LOG_WGT_BUFF_SIZE": 19, "LOG_UOP_BUFF_SIZE": 10},
            "configuration: a micro-op needs 33 bits and has 32: the indices of the buffers are too wide (elements: uop "
            "256, inp 2048, wgt 2048, acc 2048); decrease LOG_UOP_BUFF_SIZE, LOG_INP_BUFF_SIZE, LOG_WGT_BUFF_SIZE or "
            "LOG_ACC_BUFF_SIZE, or increase LOG_BLOCK",
        ),
    ],
)
def test_refusals_name_the_key_and_the_remedy(change: dict[str, Any], text: str) -> None:
    keys = {name: value for name, value in {**CLASSIC, **change}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        Config.of(keys)
    said = str(caught.value)
    assert said.startswith(text) if text.endswith(": ") else said == text


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "chip.json"
    with pytest.raises(ConfigError) as caught:
        Config.read(path)
    assert str(caught.value) == (
        f"{path}: the configuration cannot be read: No such file or directory; set VTA_CONFIG to the path of a JSON file"
    )
    path.write_text("[1]")
    with pytest.raises(ConfigError) as caught:
        Config.read(path)
    assert str(caught.value) == f'{path}: a configuration is a table of keys: {{"TARGET": "sim", …}}'
    path.write_text("{")
    with pytest.raises(ConfigError, match="this is not JSON"):
        Config.read(path)
