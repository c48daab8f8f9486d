"""Models, packages and results, which the steps of tvmc pass on."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import written_whole
from ..ir.errors import TVMError
from ..ir.module import IRModule
from ..runtime.module import load_module
from ..runtime.params import load_param_dict, save_param_dict
from ..runtime.timing import BenchmarkResult
from ..target.host import host_features
from . import archive
from .errors import TVMCException

if TYPE_CHECKING:
    import numpy as np

    from ..contrib.graph_executor import GraphModule
    from ..runtime.devices import Device
    from ..runtime.profiling import Profile
    from ..runtime.vm import VirtualMachine

_PROGRAM, _PARAMS, _GRAPH = "model.relay", "mod.params", "mod.json"
LIBRARIES = ("mod.so", "mod.tar")


class TVMCModel:
    """An imported model: a module of graph functions, and its parameters by name.

    It is given by a module, or by `model_path`, a file of `TVMCModel.save`.
    """

    mod: IRModule
    params: dict[str, Any]
    name: str

    def __init__(
        self,
        mod: IRModule | None = None,
        params: Mapping[str, Any] | None = None,
        name: str = "model",
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if (mod is None) == (model_path is None):
            raise TVMCException("TVMCModel takes a module, or model_path, the file that TVMCModel.save wrote")
        if model_path is not None:
            found = TVMCModel.load(model_path)
            mod, params, name = found.mod, found.params, found.name
        assert mod is not None
        self.mod, self.params, self.name = mod, dict(params or {}), name

    def save(self, model_path: str | os.PathLike[str]) -> None:
        """Write the model to an archive, which `tvmc.load` reads without the original framework."""
        files = {
            _PROGRAM: self.mod.astext(show_meta_data=True).encode(),
            _PARAMS: save_param_dict(self.params),
        }
        archive.write(Path(model_path), archive.SAVED_MODEL, {"name": self.name}, files)

    @staticmethod
    def load(model_path: str | os.PathLike[str]) -> TVMCModel:
        """Read an archive of `save`."""
        from ..relay.parser import fromtext

        path = Path(model_path)
        with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
            folder = Path(name)
            about = archive.unpack(path, folder, archive.SAVED_MODEL, (_PROGRAM, _PARAMS))
            with archive.parts_of(path):
                mod = fromtext((folder / _PROGRAM).read_text(encoding="utf-8"))
                params = load_param_dict((folder / _PARAMS).read_bytes())
        return TVMCModel(mod, params, str(about.get("name", path.stem)))

    def summary(self) -> str:
        """The program as text."""
        return str(self.mod.astext(show_meta_data=False))

    def __repr__(self) -> str:
        kinds = ", ".join(f"{n}: {t}" for n, t in self.inputs().items())
        return f"TVMCModel({self.name}: ({kinds}), {len(self.params)} parameters)"

    def inputs(self) -> dict[str, Any]:
        """The types of the inputs by name, without parameters."""
        return {
            p.name_hint: p.type_annotation for p in self.mod["main"].params if p.name_hint not in self.params
        }


class TVMCPackage:
    """A compiled model in one file: a library, the graph as JSON, and the parameters; for the virtual machine, the
    library alone.

    The archive is unpacked into a folder that lives as long as this object, or into `project_dir`.
    """

    def __init__(
        self,
        package_path: str | os.PathLike[str],
        project_dir: str | os.PathLike[str] | None = None,
        holder: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.package_path = str(Path(package_path))
        self._holder = holder
        if project_dir is None:
            self._unpacked = tempfile.TemporaryDirectory(prefix="tilewright-package-")
            folder = Path(self._unpacked.name)
        else:
            folder = Path(project_dir)
            folder.mkdir(parents=True, exist_ok=True)
        path = Path(package_path)
        self.about = archive.unpack(path, folder, archive.PACKAGE, (*LIBRARIES, _GRAPH, _PARAMS))
        self.lib_name = str(self.about.get("library"))
        self.type, self.executor_type = "classic", str(self.about.get("executor", "graph"))
        if self.executor_type not in ("graph", "vm"):
            raise TVMCException(f"{path}: it is for the executor {self.executor_type!r}, which is unknown")
        parts = (_GRAPH, _PARAMS) if self.executor_type == "graph" else ()
        wanted = (self.lib_name, *parts)
        missing = [n for n in wanted if n not in (*LIBRARIES, *parts) or not (folder / n).is_file()]
        if missing:
            raise TVMCException(f"{path}: damaged: it lacks {', '.join(missing)}; compile the model again")
        self.lib_path = str(folder / self.lib_name)
        with archive.parts_of(path):
            self.graph = (folder / _GRAPH).read_text(encoding="utf-8") if parts else None
        self.params = bytearray((folder / _PARAMS).read_bytes()) if parts else None

    @property
    def target(self) -> str:
        return str(self.about.get("target", ""))

    def executor(self, device: Device) -> GraphModule:
        """The model with its parameters, ready to run."""
        from ..contrib import graph_executor

        library = self._library()
        assert self.graph is not None and self.params is not None
        with archive.parts_of(Path(self.package_path)):
            if self.about.get("link_params"):
                return graph_executor.GraphModule(library["default"](device))
            made = graph_executor.create(self.graph, library, device)
            made.load_params(self.params)
        return made

    def machine(self, device: Device) -> VirtualMachine:
        """The program, ready to be called."""
        from ..runtime.vm import VirtualMachine

        library = self._library()
        if getattr(library, "type_key", "") != "vm":
            raise TVMCException(
                f"{self.package_path}: damaged: {self.lib_name} is not a program; compile it again"
            )
        return VirtualMachine(library, device)

    def _library(self) -> Any:
        """The library, after a check that this machine can run it."""
        try:
            loaded = load_module(self.lib_path)
        except TVMError as error:  # the user does not know its folder
            raise TVMCException(
                f"{self.package_path}: {str(error).replace(self.lib_path, self.lib_name)}"
            ) from None
        needed = self.about.get("features")
        missing = sorted(set(map(str, needed)) - host_features()) if isinstance(needed, list) else []
        if missing:
            raise TVMCException(
                f"{self.package_path}: it was compiled for {self.target} with {', '.join(missing)}, which this machine "
                "lacks; compile it here, or for an older CPU (-mcpu=x86-64-v3)"
            )
        return loaded

    def __repr__(self) -> str:
        return f"TVMCPackage({self.package_path}, {self.target})"


def write_package(
    path: Path,
    library: Path,
    about: Mapping[str, Any],
    graph: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> None:
    """Write a package."""
    files: dict[str, bytes | Path] = {library.name: library}
    if graph is not None:
        json.loads(graph)
        files[_GRAPH] = graph.encode()
        files[_PARAMS] = save_param_dict(params or {})
    archive.write(path, archive.PACKAGE, {**about, "library": library.name}, files)


class _Results(dict[str, "np.ndarray[Any, Any]"]):
    """Results by name. Classic programs call them `output_0`, `output_1`, …, which finds them too."""

    def __missing__(self, name: str) -> np.ndarray[Any, Any]:
        prefix, _, number = name.rpartition("_")
        if prefix != "output" or not number.isdecimal() or int(number) >= len(self):
            raise KeyError(name)
        return list(self.values())[int(number)]

    def with_numbers(self) -> dict[str, np.ndarray[Any, Any]]:
        """The results under both names."""
        return {**self, **{f"output_{i}": self[f"output_{i}"] for i in range(len(self))}}


class TVMCResult:
    """The results of a run by name, its times and profile if they were measured, and the inputs that were filled."""

    def __init__(
        self,
        outputs: Mapping[str, np.ndarray[Any, Any]] | None,
        times: BenchmarkResult | None = None,
        profile: Profile | None = None,
        filled: tuple[str, ...] = (),
    ) -> None:
        self.outputs, self.profile, self.filled = _Results(outputs or {}), profile, filled
        self.times: Any = times if times is not None else []  # empty without a benchmark

    def get_output(self, name: str) -> np.ndarray[Any, Any]:
        """A result by its name in the model, or as `output_0` and so on."""
        try:
            return self.outputs[name]
        except KeyError:
            raise TVMCException(f"there is no result {name!r}; there are {', '.join(self.outputs)}") from None

    def save(self, output_path: str | os.PathLike[str]) -> None:
        """Write the results to an .npz file."""
        import numpy as np

        try:
            with written_whole(output_path) as part, open(part, "wb") as file:  # NumPy would add a suffix
                np.savez(file, **self.outputs.with_numbers())  # type: ignore[arg-type]
        except OSError as error:
            raise TVMCException(f"{output_path}: cannot be written: {error.strerror or error}") from None

    def format_times(self) -> str:
        """The times as a table."""
        if not self.times:
            return "no times were measured; run with benchmark=True"
        return str(self.times)

    def text(self, profile: str = "") -> str:
        """The results, the times, and a text for the profile."""
        lines = [f"{n}: {a.dtype}{list(a.shape)}{_extent(a)}" for n, a in self.outputs.items()]
        if self.times:
            lines += ["", self.format_times()]
        if profile:
            lines += ["", profile]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text("" if self.profile is None else str(self.profile))


def _extent(a: np.ndarray[Any, Any]) -> str:
    """The range of the values, if they are numbers."""
    if not a.size or a.dtype.kind not in "fiu":
        return ""
    return f", from {a.min():.6g} to {a.max():.6g}"
