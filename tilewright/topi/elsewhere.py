"""The classic package had kernels for each target; here operators are the same for all, and found under all names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_HOMES = ("", ".nn", ".vision", ".image", ".generic")


def operator_or(missing: Callable[[str], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a target's package: `topi.cuda.conv2d_nchw` is `topi.nn.conv2d_nchw`, and a name that no
    package has goes to `missing`."""

    def __getattr__(name: str) -> Any:
        for home in _HOMES if not name.startswith("_") else ():
            found = vars(importlib.import_module(f"{__package__}{home}")).get(name)
            if callable(found):
                return found
        return missing(name)

    return __getattr__
