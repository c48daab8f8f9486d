"""Models in files: the name of a file selects the importer."""

from __future__ import annotations

import importlib.util
import os
import pickletools
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..ir.errors import FrontendError
from ..ir.expr import Var as SizeVar
from ..ir.module import IRModule
from ..relay import frontend
from ..relay.sizes import with_sizes
from ..relay.transform.infer_type import infer_module
from ..relay.ty import TensorType
from ..runtime import archive
from ..runtime.params import load_param_dict, save_param_dict
from .pt2 import load_exported

Shapes = Mapping[str, Sequence[Any]]
_PROGRAM, _PARAMS = "model.relay", "mod.params"


class ModelError(FrontendError):
    """A file that is not read as a model: which, why, and what to do."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """A model whose file is not there."""


class PackageMissingError(ModelError):
    """A model whose framework is not installed."""


class Imported(NamedTuple):
    """An imported model: a module of graph functions, its parameters by name, and its name."""

    mod: IRModule
    params: dict[str, Any]
    name: str


def load_model(
    path: str | os.PathLike[str],
    model_format: str | None = None,
    shape_dict: Shapes | None = None,
    **kwargs: Any,
) -> Imported:
    """The model in a file. `model_format` is that of `get_frontend_names`, by default from the name of the file.

    `shape_dict` has the shapes of inputs, if they are dynamic or others in the file. For a traced module of PyTorch it
    may have types too: {"ids": ([1, 128], "int64")}. `kwargs` go to the importer:
    `tvmc.load("net.onnx", dtype="float32")`.
    """
    file = Path(path)
    if not file.exists():
        raise ModelNotFoundError(f"{file}: there is no such file")
    kind = model_format or _by_name(file)
    if kind not in _LOADERS:
        raise ModelError(f"{file}: there is no model format {kind!r}; known are {', '.join(_LOADERS)}")
    if not file.is_file() and kind != "tensorflow":
        raise ModelError(f"{file}: is not a file; a model is one file")
    if kind != "pytorch":
        _refuse_types(file, shape_dict)
    for package in ("tensorflow", "tf2onnx") if kind in ("keras", "tensorflow") else ():
        if importlib.util.find_spec(package) is None:
            raise PackageMissingError(
                f"{file}: reading it needs the package {package!r}; pip install 'tilewright[tensorflow]'"
            )
    try:
        mod, params, name = _LOADERS[kind](file, shape_dict, kwargs)
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "torch"):
            raise
        raise PackageMissingError(
            f"{file}: reading it needs the package {error.name!r}; pip install 'tilewright[{error.name}]'"
        ) from None
    return Imported(mod, dict(params), name)


def get_frontend_names() -> list[str]:
    """The model formats that can be loaded."""
    return list(_LOADERS)


def _onnx(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    options = {"freeze_params": False, **options}
    return (*frontend.from_onnx(str(file), shape=shapes, **options), file.stem)


def _torch(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """A scripted or traced module, which has no shapes."""
    import torch

    _refuse_pickle(file)
    if not shapes:
        raise ModelError(
            f"{file}: a traced module has no shapes of inputs: give shape_dict={{'input': [1, 3, 224, 224]}}, in "
            'order (--shapes "input:[1,3,224,224]" on the command line)'
        )
    load: Any = torch.jit.load
    loaded = _loaded(file, lambda: load(str(file), map_location="cpu"), "a traced or scripted module")
    infos = [
        (name, (tuple(given[0]), given[1]) if _has_type(given) else tuple(given))
        for name, given in shapes.items()
    ]
    try:
        return (*frontend.from_pytorch(loaded, infos, **options), file.stem)
    except FrontendError as error:
        raise ModelError(f"{file}: {error}") from None


# The names in a pickle of tensors and containers alone, by the modules that they are in.
_STATE_MODULES = (
    "collections",
    "torch",
    "torch._utils",
    "torch._tensor",
    "torch.storage",
    "numpy",
    "builtins",
)


def _refuse_pickle(file: Path) -> None:
    """Refuse what torch.save writes: it has no program. The pickle is read, and not executed."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            if "constants.pkl" in names or "data.pkl" not in names:
                return
            data = archive.read(names["data.pkl"])
    except (OSError, zipfile.BadZipFile):  # the loader says what is wrong
        return
    whole = any(module not in _STATE_MODULES for module in _modules_in(data))
    what = "a pickled module" if whole else "a state_dict, the weights of a module without its code"
    load = (
        "torch.load(path, weights_only=False)" if whole else "Net(); model.load_state_dict(torch.load(path))"
    )
    raise ModelError(
        f"{file}: this is {what}, as torch.save writes it, and has no program; export it in Python:\n"
        f"  model = {load}\n"
        "  torch.export.save(torch.export.export(model.eval(), (x,)), 'net.pt2')"
    )


def _modules_in(data: bytes) -> Iterator[str]:
    """The modules whose classes and functions a pickle names."""
    texts: list[str] = []
    try:
        for opcode, value, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                yield str(value).split(" ")[0]
            elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
                yield texts[-2]
            elif isinstance(value, str):
                texts.append(value)
    except ValueError:  # damaged
        return


def _exported(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """A program of torch.export."""
    loaded = _loaded(file, lambda: load_exported(file), "a program of torch.export")
    try:
        mod, params = frontend.from_exported_program(loaded, **options)
    except FrontendError as error:
        raise ModelError(f"{file}: {error}") from None
    again = "export it again with others, or with dynamic_shapes"
    return _sized(mod, params, shapes, file, again), params, file.stem


def _keras(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    options = {"layout": "NHWC", **options}  # the layout of the file
    return (*frontend.from_keras(file, shape=shapes, **options), file.stem)


def _tensorflow(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """A SavedModel, which is a folder, or a frozen graph."""
    return (*frontend.from_tensorflow(file, shape=shapes, **options), file.stem)


def _loaded(file: Path, work: Callable[[], Any], what: str) -> Any:
    try:
        return work()
    except FrontendError:
        raise
    except Exception as error:  # torch raises many kinds for other files
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{file}: is not {what}, or a damaged one: {first[:200]}") from None


def _saved(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    found = load_imported(file)
    mod = _sized(found.mod, found.params, shapes, file, "import the original with others")
    return mod, found.params, found.name


def save_imported(model: Imported, path: Path) -> None:
    """Write an imported model to an archive, which is read without the original framework."""
    files = {
        _PROGRAM: model.mod.astext(show_meta_data=True).encode(),
        _PARAMS: save_param_dict(model.params),
    }
    archive.write(path, archive.SAVED_MODEL, {"name": model.name}, files)


def load_imported(path: Path) -> Imported:
    """Read an archive of `save_imported`."""
    from ..relay.parser import fromtext

    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        folder = Path(name)
        about = archive.unpack(path, folder, archive.SAVED_MODEL, (_PROGRAM, _PARAMS))
        with archive.parts_of(path):
            mod = fromtext((folder / _PROGRAM).read_text(encoding="utf-8"))
            params = load_param_dict((folder / _PARAMS).read_bytes())
    return Imported(mod, dict(params), str(about.get("name", path.stem)))


def _relay(file: Path, shapes: Shapes | None, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """The text of a graph; all of its parameters are inputs."""
    from ..relay.parser import fromtext

    mod = _loaded(
        file, lambda: fromtext(file.read_text(encoding="utf-8")), "the text of a graph (mod.astext())"
    )
    return _sized(infer_module(mod), {}, shapes, file, "change the types in the text"), {}, file.stem


def _refuse_types(file: Path, shapes: Shapes | None) -> None:
    for name, given in (shapes or {}).items():
        if _has_type(given):
            raise ModelError(f"{file}: the types are in the file; give {name!r} its sizes alone")


def _has_type(given: Any) -> bool:
    return len(given) == 2 and isinstance(given[1], str)


def _sized(
    mod: IRModule, params: Mapping[str, Any], shapes: Shapes | None, file: Path, remedy: str
) -> IRModule:
    return with_shapes(mod, params, shapes or {}, lambda reason: ModelError(f"{file}: {reason}"), remedy)


def with_shapes(
    mod: IRModule,
    params: Mapping[str, Any],
    shapes: Shapes,
    error: Callable[[str], Exception],
    remedy: str = "",
) -> IRModule:
    """The module with numbers for the dynamic sizes of inputs; where a shape has no number, a size stays as it is."""
    if not shapes:
        return mod
    main = infer_module(mod)["main"]
    inputs = {p.name_hint: p.checked_type for p in main.params if p.name_hint not in params}
    values: dict[Any, int] = {}
    for name, sizes in shapes.items():
        kind = inputs.get(name)
        if not isinstance(kind, TensorType):
            raise error(f"there is no input {name!r}; the inputs are {', '.join(inputs) or 'none'}")
        if len(sizes) != len(kind.shape):
            raise error(f"input {name!r} is {kind}, and {len(sizes)} sizes are given")
        for own, size in zip(kind.shape, sizes):
            if not isinstance(size, int):
                continue
            known = own if isinstance(own, int) else values.setdefault(own, size)
            if known != size or not isinstance(own, (int, SizeVar)):
                text = ", ".join(map(str, sizes))
                more = f"; {remedy}" if remedy else ""
                raise error(f"input {name!r} is {kind}, which [{text}] does not fit{more}")
    made = mod.clone()
    made["main"] = with_sizes(main, values)
    return made


_LOADERS: Final[dict[str, Callable[[Path, Shapes | None, dict[str, Any]], tuple[Any, Any, str]]]] = {
    "onnx": _onnx,
    "pytorch": _torch,
    "pytorch-exported": _exported,
    "keras": _keras,
    "tensorflow": _tensorflow,
    "saved": _saved,
    "relay": _relay,
}
SUFFIXES: Final = {
    ".onnx": "onnx",
    ".pt": "pytorch",
    ".pth": "pytorch",
    ".pt2": "pytorch-exported",
    ".keras": "keras",
    ".h5": "keras",
    ".pb": "tensorflow",
    ".tar": "saved",
    ".relay": "relay",
}
_BY_ONNX: Final = (".tflite", ".pbtxt")


def _by_name(file: Path) -> str:
    if file.is_dir() and (file / "saved_model.pb").is_file():
        return "tensorflow"
    if file.is_dir():
        raise ModelError(f"{file}: is a folder, and no SavedModel of TensorFlow")
    suffix = file.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix in _BY_ONNX:
        raise ModelError(
            f"{file}: {suffix} files are read through ONNX: python -m tf2onnx.convert --help says how to convert one"
        )
    raise ModelError(
        f"{file}: its suffix is not that of a model ({', '.join(SUFFIXES)}); "
        f"give model_format, one of {', '.join(_LOADERS)}"
    )
