"""`InferenceSession`: ONNX models with the interface of onnxruntime."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import config
from ..ir.expr import Var as SizeVar
from ..relay import frontend
from ..relay.frontend.onnx.load import load_model
from ..relay.sizes import with_sizes
from ..relay.transform.infer_type import infer_module
from ..runtime.devices import device
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from ..runtime.model import TensorSpec
from ..runtime.ndarray import NDArray, from_dlpack
from .compiling import compile
from .ort_values import IOBinding, OrtValue, onnx_type
from .session_options import RunOptions, SessionOptions

_PROVIDERS = {"CPUExecutionProvider": "llvm", "CUDAExecutionProvider": "cuda"}


class NodeArg(NamedTuple):
    """An input or result: its name, its shape with names for dynamic sizes, and its type as onnxruntime writes it."""

    name: str
    shape: list[int | str | None]
    type: str


class ModelMetadata(NamedTuple):
    """What an ONNX file says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


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
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        given = [(p, {}) if isinstance(p, str) else tuple(p) for p in providers or ("CPUExecutionProvider",)]
        if any(provider_options or ()) or any(own for _, own in given):
            raise ArgumentValueError(
                "provider_options: give the options of the target instead: target='llvm -mcpu=…'"
            )
        self._options = SessionOptions() if sess_options is None else SessionOptions.of(sess_options)
        self._providers = [name for name, _ in given]
        if "target" not in options:
            known = [p for p in self._providers if p in _PROVIDERS]
            if not known:
                raise ArgumentValueError(
                    f"providers={self._providers}: known are {', '.join(_PROVIDERS)}; or give target=…"
                )
            options["target"] = _PROVIDERS[known[0]]
        options.setdefault("opt_level", self._options.opt_level)
        model = _model_of(path_or_bytes)
        self._about: Any = model  # what `get_modelmeta` reads
        with self._threads():
            if sizes := self._options.free_dimensions:
                mod, params, name = _with_free_dimensions(model, sizes)
                options = {"name": name, "params": params, **options}
                model = mod
            self._model = compile(model, **options)
        self._started = time.time_ns()
        self._last: Mapping[str, Any] | None = None  # the inputs of the last run, which a profile repeats

    def _threads(self) -> Any:
        count = self._options.intra_op_num_threads
        return config.using(num_threads=count) if count else nullcontext()

    # -- runs ------------------------------------------------------------------------------------
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """The results in order, or those of `output_names`, for inputs by name."""
        _check_run_options(run_options)
        texts = self._model.strings
        given = {
            k: np.asarray(v, object if k in texts else None) if k in texts or hasattr(v, "dtype") else v
            for k, v in input_feed.items()
        }
        return self._results(output_names, given)

    def _results(self, output_names: Sequence[str] | None, given: Mapping[str, Any]) -> list[Any]:
        known = [t.name for t in self._model.outputs]
        if unknown := [n for n in output_names or () if n not in known]:
            raise ArgumentValueError(f"there is no result {unknown[0]!r}; the results are {', '.join(known)}")
        with self._threads():
            made = self._model.run(given)
        if self._options.enable_profiling:
            self._last = given
        return [made[n] for n in output_names or known]

    def _arrays(self, output_names: Sequence[str] | None, given: Mapping[str, Any]) -> list[NDArray]:
        """The results as arrays on the device that computes them."""
        made = self._results(output_names, {k: _array(v) for k, v in given.items()})
        return [_array(v) for v in made]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """`run` for arrays on devices: the results stay on the device that computes them."""
        _check_run_options(run_options)
        given = {k: v.ndarray for k, v in input_dict_ort_values.items()}
        return [OrtValue(v) for v in self._arrays(output_names, given)]

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run on the bound inputs, and put the results where they are bound."""
        _check_run_options(run_options)
        iobinding.run(self._arrays)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """`run` in a thread, which calls `callback(results, user_data, error)`; no error is an empty text."""

        def work() -> None:
            try:
                made, error = self.run(output_names, input_feed, run_options), ""
            except (ValueError, TypeError, RuntimeError) as failure:
                made, error = [], str(failure)
            callback(made, user_data, error)

        threading.Thread(target=work, name="run_async").start()

    # -- facts -----------------------------------------------------------------------------------
    def get_inputs(self) -> list[NodeArg]:
        return [_node(t, self._model.strings) for t in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [_node(t, self._model.strings) for t in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are constants of the compiled code."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about itself."""
        proto, _, _ = load_model(self._about)
        return ModelMetadata(
            proto.producer_name, proto.graph.name, proto.domain, proto.doc_string, proto.graph.doc_string,
            proto.model_version, {e.key: e.value for e in proto.metadata_props},
        )  # fmt: skip

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: {} for name in self._providers}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        if list(providers or ()) != self._providers or provider_options:
            raise ArgumentValueError(
                "a session is compiled for its providers: make another one, InferenceSession(path, providers=…)"
            )

    def disable_fallback(self) -> None:
        """There is none: what the target cannot compute is refused when the session is made."""

    def enable_fallback(self) -> None:
        """There is none: what the target cannot compute is refused when the session is made."""

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_profiling_start_time_ns(self) -> int:
        return self._started

    def end_profiling(self) -> str:
        """Write the trace of the kernels (Chrome, Perfetto) for the inputs of the last run; its path."""
        if not self._options.enable_profiling:
            raise ArgumentValueError(
                "the session was made without enable_profiling=True; session.compiled.profile(x) works for all"
            )
        if self._last is None:
            raise ArgumentValueError("nothing was run yet, so there is nothing to profile")
        path = f"{self._options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.trace.json"
        with self._threads():
            self._model.profile(*(self._last[t.name] for t in self._model.inputs)).save(path)
        return path

    @property
    def compiled(self) -> Any:
        """The compiled model, with its profile and explanation."""
        return self._model

    def __repr__(self) -> str:
        return f"InferenceSession({self._model!r})"


def get_available_providers() -> list[str]:
    """The providers that this machine has."""
    return [name for name, kind in _PROVIDERS.items() if kind == "llvm" or device(kind, 0).exist]


def get_device() -> str:
    """The kind of device that sessions may run on: `GPU` if there is one, `CPU` otherwise."""
    return "GPU" if len(get_available_providers()) > 1 else "CPU"


def _model_of(given: Any) -> Any:
    if isinstance(given, (str, os.PathLike)) or not isinstance(given, (bytes, bytearray, memoryview)):
        return given
    return load_model(bytes(given))[0]


def _with_free_dimensions(model: Any, sizes: Mapping[str, int]) -> tuple[Any, Any, str]:
    """The imported model with numbers for the dynamic sizes of these names, its weights, and its name."""
    mod, params = frontend.from_onnx(
        str(model) if isinstance(model, os.PathLike) else model, freeze_params=False
    )
    main = infer_module(mod)["main"]
    named = {
        d.name: d for p in main.params for d in getattr(p.checked_type, "shape", ()) if isinstance(d, SizeVar)
    }
    for name in sizes.keys() - named.keys():
        warnings.warn(f"the model has no dynamic size {name!r}", RuntimeWarning, stacklevel=4)
    made = mod.clone()
    made["main"] = with_sizes(main, {named[name]: size for name, size in sizes.items() if name in named})
    return made, dict(params), "model"


def _check_run_options(given: Any) -> None:
    if given is not None and not isinstance(given, RunOptions) and type(given).__name__ != "RunOptions":
        raise ArgumentTypeError(f"run_options is a RunOptions, not {type(given).__qualname__}")


def _array(value: Any) -> NDArray:
    if isinstance(value, NDArray):
        return value
    return from_dlpack(np.require(value, requirements="W"))


def _node(t: TensorSpec, strings: Container[str]) -> NodeArg:
    kind = "tensor(string)" if t.name in strings else onnx_type(t.dtype)
    return NodeArg(t.name, list(t.shape), kind)
