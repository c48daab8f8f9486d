"""What `tilewright.compile` takes for a model, and its import as a graph."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..ir.expr import Var as SizeVar
from ..ir.module import IRModule
from ..relay import frontend
from ..relay.expr import Expr, Function
from ..relay.transform.infer_type import infer_module
from ..runtime.compiled import Form
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from .files import Imported, load_model, with_shapes
from .keras_models import backend_of, of_jax, of_torch

Source = tuple[Imported, Form | None]
_TAKEN = (
    "a torch.nn.Module, a program of torch.export, the path of a model (.onnx, .pt2, .pt, .keras, .relay, …), an ONNX "
    "ModelProto, a Keras model, a JAX function, a graph (relay), or tensor expressions"
)


def source_of(
    model: Any, example: Any, dynamic: Any, params: Mapping[str, Any] | None, state: bool = False
) -> Source:
    """The imported model, and the form of its calls if its framework has structures of tensors.

    With `state`, the new values of the buffers that a network of PyTorch changes are results of it, by their names.
    """
    if isinstance(model, (str, os.PathLike)):
        return _of_file(Path(model), example, dynamic, state)
    if isinstance(model, (IRModule, Expr)):
        mod = model if isinstance(model, IRModule) else IRModule.from_expr(model)
        return _sized(Imported(mod, dict(params or {}), "model"), example, dynamic), None
    for package, make in _FRAMEWORKS.items():
        if package in sys.modules:
            found = make(sys.modules[package], model, example, dynamic, state)
            if found is not None:
                return found
    if callable(model) and "jax" in sys.modules:
        return _of_jax(model, example, dynamic)
    raise ArgumentTypeError(f"tilewright.compile takes {_TAKEN}; not {type(model).__name__}")


# ---------------------------------------------------------------------------- files and graphs
def _of_file(file: Path, example: Any, dynamic: Any, state: bool) -> Source:
    if file.suffix == ".onnx":
        return _of_onnx(str(file), file.stem, example, dynamic), None
    if file.suffix == ".pt2":
        from .pt2 import load_exported
        from .torch_models import imported

        if file.is_file():
            refuse_example(example, dynamic, f"{file}: a program of torch.export has its shapes")
            return imported(load_exported(file), file.stem, state=state)
    shapes = _shapes_by_name(example) if file.suffix in (".pt", ".pth") else None
    found = load_model(file, shape_dict=shapes)
    return (found if shapes else _sized(found, example, dynamic)), None


def _of_onnx(model: Any, name: str, example: Any, dynamic: Any) -> Imported:
    """An ONNX model. Open sizes are those of the example, if there is one, but for the dynamic dimensions."""
    if isinstance(model, str) and not os.path.isfile(model):
        load_model(model)  # it says what is wrong
    mod, params = frontend.from_onnx(model, freeze_params=False)
    return _sized(Imported(mod, dict(params), name), example, dynamic)


def _shapes_by_name(example: Any) -> dict[str, Any] | None:
    """The shapes and types of an example, for a traced module, which has none."""
    if example is None:
        return None
    values = example if isinstance(example, Mapping) else dict(enumerate(_in_order(example)))
    return {
        k if isinstance(k, str) else f"input{k}": (list(v.shape), str(v.dtype).removeprefix("torch."))
        for k, v in values.items()
    }


def _in_order(example: Any) -> Sequence[Any]:
    return example if isinstance(example, (tuple, list)) else (example,)


def _sized(model: Imported, example: Any, dynamic: Any) -> Imported:
    """A graph with the sizes of an example for those that are open, except for the dynamic dimensions."""
    main = infer_module(model.mod)["main"]
    inputs = {p.name_hint: p.checked_type for p in main.params if p.name_hint not in model.params}
    kept = _kept(inputs, dynamic)
    if example is None or dynamic is True:
        if dynamic is not None and dynamic is not True and example is None:
            raise ArgumentValueError("dynamic: give an example too, for the sizes that are not dynamic")
        return model
    values = example if isinstance(example, Mapping) else dict(zip(inputs, _in_order(example)))
    open_sizes = {inputs[name].shape[i] for name, i in kept}  # one that occurs elsewhere too stays open there

    def fixed(name: str, value: Any) -> list[Any]:
        sizes = [int(n) for n in (value.shape if hasattr(value, "shape") else np.shape(value))]
        own = inputs[name].shape if name in inputs else ()
        stays = [not isinstance(d, (int, SizeVar)) or d in open_sizes for d in own]
        return [None if s else n for n, s in zip(sizes, stays)] if len(own) == len(sizes) else sizes

    shapes = {name: fixed(name, value) for name, value in values.items()}
    made = with_shapes(
        model.mod, model.params, shapes, lambda reason: ArgumentValueError(f"example: {reason}")
    )
    if missing := [n for n in inputs if n not in values]:
        raise ArgumentValueError(f"example: it has no value for {', '.join(missing)}")
    return model._replace(mod=made)


def _kept(inputs: Mapping[str, Any], dynamic: Any) -> set[tuple[str, int]]:
    """The dimensions that stay open: (input, number)."""
    if dynamic is None or isinstance(dynamic, bool):
        return set()
    kept = set()
    for name, dims in dynamic.items():
        if name not in inputs:
            raise ArgumentValueError(f"dynamic: there is no input {name!r}; there are {', '.join(inputs)}")
        for d in dims:
            rank = len(inputs[name].shape)
            if not -rank <= d < rank:
                raise ArgumentValueError(
                    f"dynamic: the input {name!r} is {inputs[name]}, which has no dimension {d}"
                )
            if isinstance(inputs[name].shape[d % rank], int):
                raise ArgumentValueError(
                    f"dynamic: dimension {d} of the input {name!r} is {inputs[name].shape[d % rank]} in the model; "
                    "export it with a dynamic dimension"
                )
            kept.add((name, d % rank))
    return kept


def refuse_example(example: Any, dynamic: Any, reason: str) -> None:
    """Refuse arguments that would change nothing."""
    if example is not None or dynamic:
        raise ArgumentValueError(f"{reason}; give neither example nor dynamic")


# ---------------------------------------------------------------------------- frameworks
def _of_torch(torch: Any, model: Any, example: Any, dynamic: Any, state: bool) -> Source | None:
    from .torch_models import arguments_of, exported, imported

    if isinstance(model, torch.export.ExportedProgram):
        refuse_example(example, dynamic, "a program of torch.export has its shapes")
        return imported(model, "model", state=state)
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        shapes = _shapes_by_name(example)
        if shapes is None:
            raise ArgumentValueError("a traced module has no shapes: give an example of its inputs")
        infos = [(n, (tuple(s), d)) for n, (s, d) in shapes.items()]
        mod, params = frontend.from_pytorch(model, infos)
        return Imported(mod, dict(params), "model"), None
    if isinstance(model, torch.nn.Module):
        program = exported(model, *arguments_of(example), dynamic)
        return imported(program, type(model).__name__, dynamic, state)
    return None


def _of_onnx_proto(onnx: Any, model: Any, example: Any, dynamic: Any, state: bool) -> Source | None:
    if not isinstance(model, onnx.ModelProto):
        return None
    return _of_onnx(model, model.graph.name or "model", example, dynamic), None


def _of_keras(keras: Any, model: Any, example: Any, dynamic: Any, state: bool) -> Source | None:
    if not isinstance(model, keras.Model):
        return None
    traced = {"jax": of_jax, "torch": of_torch}.get(backend_of(model))
    if traced is not None:
        return traced(model, example, dynamic), None
    mod, params = frontend.from_keras(model, layout="NHWC")
    return _sized(Imported(mod, dict(params), model.name), example, dynamic), None


def _of_jax(function: Callable[..., Any], example: Any, dynamic: Any) -> Source:
    if example is None:
        raise ArgumentValueError("a JAX function has no shapes: give an example of its inputs")
    if dynamic is True:
        raise ArgumentValueError(
            'dynamic=True: name the dynamic sizes of a JAX function: {"x": {0: "batch"}}'
        )
    args = () if isinstance(example, Mapping) else _in_order(example)
    named = dict(example) if isinstance(example, Mapping) else {}
    mod, params = frontend.from_jax(function, *args, dynamic=dynamic or None, **named)
    return Imported(mod, dict(params), getattr(function, "__name__", "model")), None


_FRAMEWORKS: dict[str, Callable[[Any, Any, Any, Any, bool], Source | None]] = {
    "keras": _of_keras,  # first: on PyTorch, a model of Keras is a module
    "torch": _of_torch,
    "onnx": _of_onnx_proto,
}


def is_graph(model: Any) -> bool:
    """Whether a program of ours is a graph, not loops or tensor expressions."""
    if isinstance(model, IRModule):
        return any(isinstance(f, Function) for f in model.functions.values())
    return isinstance(model, Expr)
