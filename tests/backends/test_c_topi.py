"""The tests of topi's operators once more, with the C target: what a backend in one small file can do."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

TOPI = Path(__file__).parents[1] / "topi"
sys.path.append(str(TOPI))

import test_topi_activation  # noqa: E402
import test_topi_elementwise  # noqa: E402
import test_topi_nn_pooling  # noqa: E402
import test_topi_reduction  # noqa: E402
import test_topi_transform  # noqa: E402

pytestmark = pytest.mark.needs("cc")

for _module in (
    test_topi_activation,
    test_topi_elementwise,
    test_topi_nn_pooling,
    test_topi_reduction,
    test_topi_transform,
):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and "check" in inspect.signature(_test).parameters:
            globals()[f"{_name}_of_{_module.__name__.removeprefix('test_topi_')}"] = _test
