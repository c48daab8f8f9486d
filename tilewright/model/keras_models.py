"""Models of Keras 3 on JAX or PyTorch, traced by their own framework; those on TensorFlow go through ONNX.

The layout is that of the model; the batch stays dynamic where the model leaves it open and no example fixes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.errors import FrontendError
from ..relay import frontend
from ..relay.expr import Var, bind
from ..relay.transform.infer_type import infer_module
from ..runtime.errors import ArgumentValueError
from .files import Imported
from .torch_models import with_names


def backend_of(model: Any) -> str:
    """The framework that a model of Keras runs on; Keras 2 knows TensorFlow only."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, getattr(keras, "Layer", ())):
        return "tensorflow"
    return str(keras.backend.backend())


def function_of(model: Any) -> tuple[Callable[..., Any], dict[str, tuple[tuple[Any, ...], str]]]:
    """A model as a function of its inputs by name, and their shapes, None for an open size, and types."""
    from keras import tree

    if not getattr(model, "inputs", None):
        raise ArgumentValueError(
            f"the Keras model {model.name!r} has no inputs yet: call it once, or give it an Input layer"
        )
    inputs = {_name(t): (tuple(t.shape), str(t.dtype)) for t in model.inputs}

    def call(**given: Any) -> Any:
        values = [given[name] for name in inputs]
        form = getattr(model, "input", None)  # a Sequential has none, and one input
        return model(values[0] if form is None else tree.pack_sequence_as(form, values), training=False)

    return call, inputs


def _name(tensor: Any) -> str:
    made_by = (getattr(tensor, "_keras_history", None) or (None,))[0]
    return str(getattr(made_by, "name", None) or tensor.name)


def sizes_of(
    inputs: Mapping[str, tuple[tuple[Any, ...], str]], example: Any, dynamic: Any
) -> tuple[dict[str, tuple[int, ...]], dict[str, dict[int, str]]]:
    """The shapes to trace with, and the names of the dimensions that stay dynamic."""
    import numpy as np

    given, shapes, opened = _named(inputs, example), {}, {}
    for name, (shape, _) in inputs.items():
        found = dynamic.get(name, {}) if isinstance(dynamic, Mapping) else {}
        wanted = dict(found) if isinstance(found, Mapping) else {d: f"{name}_{d}" for d in found}
        if dynamic is True or (example is None and not wanted):
            wanted |= {d: "batch" if d == 0 else f"{name}_{d}" for d, s in enumerate(shape) if s is None}
        if wanted:
            opened[name] = wanted
        sizes = tuple(np.shape(given[name])) if name in given else shape
        shapes[name] = tuple(3 if s is None or d in wanted else int(s) for d, s in enumerate(sizes))
    return shapes, opened


def of_jax(model: Any, example: Any, dynamic: Any) -> Imported:
    """The graph of a model that runs on JAX."""
    import jax

    kind: Any = jax.ShapeDtypeStruct
    call, inputs = function_of(model)
    shapes, opened = sizes_of(inputs, example, dynamic)
    given = {n: kind(s, inputs[n][1]) for n, s in shapes.items()}
    mod, params = frontend.from_jax(call, dynamic=opened or None, **given)
    names = [p.name_hint.removeprefix("given.") for p in mod["main"].params[: len(given)]]
    return Imported(renamed(mod, names), dict(params), model.name)


def of_torch(model: Any, example: Any, dynamic: Any) -> Imported:
    """The graph of a model that runs on PyTorch."""
    import torch

    call, inputs = function_of(model)
    shapes, opened = sizes_of(inputs, example, dynamic)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, given: dict[str, Any]) -> Any:
            return call(**given)

    tensors = {n: torch.zeros(s, dtype=getattr(torch, inputs[n][1])) for n, s in shapes.items()}
    dims = {size: torch.export.Dim(size) for own in opened.values() for size in own.values()}
    open_dims = {n: {d: dims[size] for d, size in opened.get(n, {}).items()} for n in tensors}
    try:
        with torch.no_grad():
            program = torch.export.export(
                Model().eval(), (tensors,), dynamic_shapes=(open_dims,) if dims else None, strict=False
            )
    except Exception as error:  # whatever a model does when it runs
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FrontendError(f"{model.name}: torch.export cannot capture it: {lines[0]}") from error
    mod, params = frontend.from_exported_program(program)
    made = renamed(mod, list(tensors))
    made["main"] = with_names(made["main"], opened)
    return Imported(made, dict(params), model.name)


def renamed(mod: Any, names: Sequence[str]) -> Any:
    """A module whose first inputs have the names of the model."""
    main = mod["main"]
    fresh = {p: Var(name, p.type_annotation) for p, name in zip(main.params, names)}
    made = mod.clone()
    made["main"] = main.replace(
        params=tuple(fresh.get(p, p) for p in main.params), body=bind(main.body, fresh)
    )
    return infer_module(made)


def _named(inputs: Mapping[str, Any], example: Any) -> dict[str, Any]:
    """The values of an example by the names of the inputs."""
    if example is None:
        return {}
    if isinstance(example, Mapping):
        return dict(example)
    values: Sequence[Any] = example if isinstance(example, (tuple, list)) else (example,)
    return dict(zip(inputs, values))
