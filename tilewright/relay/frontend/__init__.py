"""Importers: a model of another framework as a module of graph functions and its parameters.

mod, params = relay.frontend.from_onnx("net.onnx", shape={"x": (1, 3, 224, 224)})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...absent import attributes
from ...homes import lazily

if TYPE_CHECKING:
    from .jax import from_jax
    from .keras import from_keras
    from .onnx import from_onnx
    from .pytorch import from_exported_program, from_pytorch
    from .tensorflow import from_tensorflow

__all__ = ["from_exported_program", "from_jax", "from_keras", "from_onnx", "from_pytorch", "from_tensorflow"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# An importer is loaded when it is first used.
__getattr__ = lazily(
    __name__,
    {
        "change_datatype": "ChangeDatatype",
        "jax": "from_jax",
        "keras": "from_keras",
        "onnx": "from_onnx",
        "pytorch": "from_exported_program from_pytorch",
        "tensorflow": "from_tensorflow",
    },
    otherwise=attributes(__name__),
)
