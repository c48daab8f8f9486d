"""The example chip of `examples/vector_dsp.py`, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def example() -> ModuleType:
    """The example, which registers the target `dsp` when it is first imported."""
    name = "example_vector_dsp"
    if name not in sys.modules:
        path = Path(__file__).parents[2] / "examples" / "vector_dsp.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
