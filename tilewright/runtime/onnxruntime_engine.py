"""onnxruntime as the engine of parts of a model: a model of ONNX for each function."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..forks import new_in_child
from .errors import LoadError, TVMError
from .external import ExternalModule
from .json_reader import read_json
from .ndarray import NDArray
from .registry import register_func
from .threads import num_threads

TYPE_KEY: Final = "onnxruntime"


class _Session:
    """A model of ONNX, loaded at its first call."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._session: Any = None
        self._lock = new_in_child(threading.Lock())

    def __call__(self, *arrays: NDArray) -> None:
        session = self._ready()
        names = [i.name for i in session.get_inputs()]
        given = {n: np.asarray(a) for n, a in zip(names, arrays, strict=False)}
        results = session.run(None, given)
        for made, out in zip(results, arrays[len(names) :], strict=True):
            np.copyto(np.asarray(out), made.reshape(out.shape))

    def _ready(self) -> Any:
        with self._lock:
            if self._session is None:
                try:
                    import onnxruntime
                except ImportError:
                    raise TVMError(
                        "a part of the model runs in onnxruntime, which is not installed: pip install onnxruntime"
                    ) from None
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = num_threads()
                options.log_severity_level = 3
                self._session = onnxruntime.InferenceSession(
                    self.model, options, providers=["CPUExecutionProvider"]
                )
            return self._session


def onnx_module(models: Mapping[str, bytes]) -> ExternalModule:
    """A module whose functions are models of ONNX, serialized."""
    head = json.dumps({name: len(model) for name, model in models.items()}).encode()
    data = b"".join([struct.pack("<Q", len(head)), head, *models.values()])
    return ExternalModule({n: _Session(m) for n, m in models.items()}, TYPE_KEY, data)


@register_func(f"runtime.module.loadbinary_{TYPE_KEY}", override=True)
def load(data: bytes) -> ExternalModule:
    """The module that `save_to_bytes` wrote."""
    (length,) = struct.unpack("<Q", data[:8]) if len(data) >= 8 else (len(data),)
    at = 8 + length
    sizes = read_json(data[8:at], "a module of onnxruntime is damaged") if at <= len(data) else None
    if not isinstance(sizes, dict) or at + sum(sizes.values()) != len(data):
        raise LoadError("a module of onnxruntime is damaged: it is truncated")
    models = {}
    for name, size in sizes.items():
        models[name], at = data[at : at + size], at + size
    return onnx_module(models)
