"""Loading a model from a file, by the importer that its name asks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...ir.errors import FrontendError
from ...relay import frontend
from .model import TVMCModel

__all__ = ["get_frontend_names", "load_model"]

Shapes = Mapping[str, Sequence[Any]]


def load_model(
    path: str | os.PathLike[str],
    model_format: str | None = None,
    shape_dict: Shapes | None = None,
    **kwargs: Any,
) -> TVMCModel:
    """The model in a file. `shape_dict` gives the sizes of inputs, where the file leaves them open or has others.

    `kwargs` go to the importer: `tvmc.load("net.onnx", dtype="float32")`.
    """
    file = Path(path)
    if not file.exists():
        raise FrontendError(f"{file}: there is no such file")
    if not file.is_file():
        raise FrontendError(f"{file}: is no file; a model is one file")
    kind = model_format or _by_name(file)
    if kind not in _LOADERS:
        raise FrontendError(f"{file}: there is no model format {kind!r}; known are {', '.join(_LOADERS)}")
    try:
        mod, params, name = _LOADERS[kind](file, shape_dict, kwargs)
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "torch"):
            raise
        raise FrontendError(
            f"{file}: reading it needs the package {error.name!r}; pip install 'tilewright[{error.name}]'"
        ) from None
    return TVMCModel(mod, params, name)


def get_frontend_names() -> list[str]:
    """The model formats that can be loaded."""
    return list(_LOADERS)


def _onnx(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    options = {"freeze_params": False, **options}
    return (*frontend.from_onnx(str(file), shape=shapes, **options), file.stem)


def _torch(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """A scripted or traced module, which does not know its shapes."""
    import torch

    if not shapes:
        raise FrontendError(
            f"{file}: a traced module does not say what it takes: give shape_dict={{'input': [1, 3, 224, 224]}}, in "
            'order (--shapes "input:[1,3,224,224]" on the command line)'
        )
    load: Any = torch.jit.load
    loaded = _loaded(file, lambda: load(str(file), map_location="cpu"), "a traced or scripted module")
    infos = [(name, tuple(sizes)) for name, sizes in shapes.items()]
    return (*frontend.from_pytorch(loaded, infos, **options), file.stem)


def _exported(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """A program of torch.export."""
    import torch

    if shapes:
        raise FrontendError(
            f"{file}: a program of torch.export has its shapes in it; export it again with others"
        )
    loaded = _loaded(file, lambda: torch.export.load(str(file)), "a program of torch.export")
    return (*frontend.from_exported_program(loaded, **options), file.stem)


def _loaded(file: Path, work: Callable[[], Any], what: str) -> Any:
    try:
        return work()
    except Exception as error:  # whatever torch says to a file of another kind
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FrontendError(f"{file}: is not {what}, or a damaged one: {first[:200]}") from None


def _saved(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    if shapes:
        raise FrontendError(f"{file}: a saved model has its shapes in it; import the original with others")
    found = TVMCModel.load(file)
    return found.mod, found.params, found.name


_LOADERS: Final[dict[str, Callable[[Path, Shapes | None, dict[str, Any]], tuple[Any, Any, str]]]] = {
    "onnx": _onnx,
    "pytorch": _torch,
    "pytorch-exported": _exported,
    "saved": _saved,
}
_SUFFIXES: Final = {
    ".onnx": "onnx",
    ".pt": "pytorch",
    ".pth": "pytorch",
    ".pt2": "pytorch-exported",
    ".tar": "saved",
}
_BY_ONNX: Final = (".keras", ".h5", ".pb", ".tflite", ".pbtxt")


def _by_name(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if suffix in _BY_ONNX:
        raise FrontendError(
            f"{file}: {suffix} files are read through ONNX: python -m tf2onnx.convert --help says how to convert one"
        )
    raise FrontendError(
        f"{file}: the name does not say what kind of model it is ({', '.join(_SUFFIXES)}); "
        f"give model_format, one of {', '.join(_LOADERS)}"
    )
