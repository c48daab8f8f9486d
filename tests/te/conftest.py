from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te


@pytest.fixture
def run() -> Callable[..., list[np.ndarray]]:
    """Runs tensor expressions through the interpreter; gives the arrays after the call.

    An argument is an array, a scalar, or the shape of an output.
    """
    from tilewright.tir.interpret import interpret

    def call(args: list[Any], *values: Any, **options: Any) -> list[np.ndarray]:
        func = te.create_prim_func(args, **options)
        held = [
            np.zeros(v, str(a.dtype)) if isinstance(v, tuple) else v
            for a, v in zip(args, values, strict=True)
        ]
        interpret(func, *held)
        return held

    return call
