"""`InferenceSession`: ONNX models with the interface of onnxruntime."""

from __future__ import annotations

import os
import warnings
from collections.abc import Container, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import config
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from ..runtime.model import TensorSpec
from .compiling import compile

_TYPES = {
    "float32": "float", "float64": "double", "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "bool": "bool", "float16": "float16",
    "bfloat16": "bfloat16",
}  # fmt: skip
_PROVIDERS = {"CPUExecutionProvider": "llvm", "CUDAExecutionProvider": "cuda"}


class NodeArg(NamedTuple):
    """An input or result: its name, its shape with names for dynamic sizes, and its type as onnxruntime writes it."""

    name: str
    shape: list[int | str | None]
    type: str


class SessionOptions:
    """The options of a session that mean something here: `intra_op_num_threads`, the number of threads.

    Options of onnxruntime that would change nothing are taken with a warning.
    """

    _NO_EFFECT = frozenset(
        "graph_optimization_level execution_mode inter_op_num_threads enable_mem_pattern enable_cpu_mem_arena "
        "enable_mem_reuse log_severity_level log_verbosity_level logid enable_profiling optimized_model_filepath "
        "profile_file_prefix use_deterministic_compute".split()
    )

    def __init__(self) -> None:
        self.intra_op_num_threads = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "intra_op_num_threads":
            if not isinstance(value, int) or value < 0:
                raise ArgumentValueError(
                    f"intra_op_num_threads={value!r}: it is a number of threads; 0 takes all"
                )
        elif name in self._NO_EFFECT:
            warnings.warn(f"SessionOptions.{name} does nothing here", RuntimeWarning, stacklevel=2)
        else:
            raise AttributeError(f"SessionOptions has no option {name!r}")
        object.__setattr__(self, name, value)


class InferenceSession:
    """A compiled ONNX model behind the interface of onnxruntime.

    session = tilewright.InferenceSession("net.onnx")
    (scores,) = session.run(None, {"image": image})

    `path_or_bytes` is a path, the bytes of a model, or a ModelProto. `providers` chooses the target of the first one
    that is known; `target` names one itself. Further arguments are those of `tilewright.compile`.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        if provider_options:
            raise ArgumentValueError(
                "provider_options: give the options of the target instead: target='llvm -mcpu=…'"
            )
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise ArgumentTypeError(
                f"sess_options is a tilewright.SessionOptions, not {type(sess_options).__module__}."
                f"{type(sess_options).__name__}"
            )
        self._options = sess_options or SessionOptions()
        self._providers = [p if isinstance(p, str) else p[0] for p in providers or ("CPUExecutionProvider",)]
        if "target" not in options:
            known = [p for p in self._providers if p in _PROVIDERS]
            if not known:
                raise ArgumentValueError(
                    f"providers={self._providers}: known are {', '.join(_PROVIDERS)}; or give target=…"
                )
            options["target"] = _PROVIDERS[known[0]]
        with self._threads():
            self._model = compile(_model_of(path_or_bytes), **options)

    def _threads(self) -> Any:
        count = self._options.intra_op_num_threads
        return config.using(num_threads=count) if count else nullcontext()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """The results in order, or those of `output_names`, for inputs by name."""
        if run_options is not None:
            raise ArgumentValueError("run_options are not supported; leave them out")
        known = [t.name for t in self._model.outputs]
        if unknown := [n for n in output_names or () if n not in known]:
            raise ArgumentValueError(f"there is no result {unknown[0]!r}; the results are {', '.join(known)}")
        texts = self._model.strings
        given = {k: np.asarray(v, object if k in texts else None) for k, v in input_feed.items()}
        with self._threads():
            made = self._model.run(given)
        return [made[n] for n in output_names or known]

    def get_inputs(self) -> list[NodeArg]:
        return [_node(t, self._model.strings) for t in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [_node(t, self._model.strings) for t in self._model.outputs]

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_session_options(self) -> SessionOptions:
        return self._options

    @property
    def compiled(self) -> Any:
        """The compiled model, with its profile and explanation."""
        return self._model

    def __repr__(self) -> str:
        return f"InferenceSession({self._model!r})"


def _model_of(given: Any) -> Any:
    if isinstance(given, (str, os.PathLike)) or not isinstance(given, (bytes, bytearray, memoryview)):
        return given
    import onnx

    return onnx.load_from_string(bytes(given))


def _node(t: TensorSpec, strings: Container[str]) -> NodeArg:
    kind = "string" if t.name in strings else _TYPES.get(t.dtype, t.dtype)
    return NodeArg(t.name, list(t.shape), f"tensor({kind})")
