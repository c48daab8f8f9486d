from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.tir.interpret import interpret


@pytest.fixture
def told() -> Callable[[Any], str]:
    """The text of an error that `pytest.raises` caught, without the number of the line that it names."""
    return lambda caught: re.sub(r"(  at \S+\.py):\d+", r"\1:LINE", str(caught.value))


@pytest.fixture
def run() -> Callable[..., list[Any]]:
    """Runs tensor expressions through the interpreter and gives the arguments as they are afterwards.

    A tuple among the values is the shape of an output. Each block is held to the regions it declares.
    """

    def call(args: list[Any], *values: Any, **options: Any) -> list[Any]:
        func = te.create_prim_func(args, **options)
        held = [
            np.zeros(v, str(a.dtype)) if isinstance(v, tuple) else v
            for a, v in zip(args, values, strict=True)
        ]
        outputs = [
            func.buffer_map[p].name for p, v in zip(func.params, values, strict=True) if isinstance(v, tuple)
        ]
        interpret(func, *held, check_regions=True, outputs=outputs)
        return held

    return call
