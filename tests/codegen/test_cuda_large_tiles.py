"""The code of products and convolutions of float32 by large tiles, compiled by NVRTC where it is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from large_tile_programs import AMPERE, HOPPER, LARGE_TILE_PROGRAMS, STREAMED_PROGRAMS


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", ["product, both turned", "convolution 3x3, odd"])
def test_it_compiles(name: str) -> None:
    made = LARGE_TILE_PROGRAMS[name]().build(AMPERE)
    text = made.imported_modules[0].get_source("ptx")
    assert "cp.async.ca.shared.global" in text and "ld.shared.v4" in text.replace(
        "ld.shared.v4.b32", "ld.shared.v4"
    )


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", ["streamed, odd sizes", "streamed, convolution 1x1"])
def test_what_the_copy_engine_fetches_compiles(name: str) -> None:
    made = STREAMED_PROGRAMS[name]().build(HOPPER)
    text = made.imported_modules[0].get_source("ptx")
    assert "cp.async.bulk.tensor" in text and "mbarrier.try_wait" in text and "wgmma" not in text
