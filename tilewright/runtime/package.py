"""A compiled model in one file: a library, the graph as JSON, and the parameters; for the virtual machine, the library
alone."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import archive
from .devices import Device
from .errors import LoadError, TVMError
from .graph_module import GraphModule, create
from .host import host_features
from .module import Module, load_module
from .params import save_param_dict
from .vm import VirtualMachine

GRAPH, PARAMS = "mod.json", "mod.params"
LIBRARIES = ("mod.so", "mod.tar")


class Package:
    """A package. It is unpacked into a folder that lives as long as this object, or into `folder`."""

    def __init__(self, path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path)
        if folder is None:
            self._unpacked = tempfile.TemporaryDirectory(prefix="tilewright-package-")
            folder = self._unpacked.name
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.about = archive.unpack(self.path, place, archive.PACKAGE, (*LIBRARIES, GRAPH, PARAMS))
        self.lib_name, self.executor_type = (
            str(self.about.get("library")),
            str(self.about.get("executor", "graph")),
        )
        if self.executor_type not in ("graph", "vm"):
            raise LoadError(f"{path}: it requires the executor {self.executor_type!r}, which is unknown")
        parts = (GRAPH, PARAMS) if self.executor_type == "graph" else ()
        wanted = (self.lib_name, *parts)
        missing = [n for n in wanted if n not in (*LIBRARIES, *parts) or not (place / n).is_file()]
        if missing:
            raise LoadError(f"{path}: damaged: it lacks {', '.join(missing)}; compile the model again")
        self.lib_path = str(place / self.lib_name)
        with archive.parts_of(self.path):
            self.graph = (place / GRAPH).read_text(encoding="utf-8") if parts else None
        self.params = bytearray((place / PARAMS).read_bytes()) if parts else None

    @property
    def target(self) -> str:
        return str(self.about.get("target", ""))

    def executor(self, device: Device) -> GraphModule:
        """The model with its parameters, ready to run."""
        library = self.library()
        assert self.graph is not None and self.params is not None
        with archive.parts_of(self.path):
            if self.about.get("link_params"):
                return GraphModule(library["default"](device))
            made = create(self.graph, library, device)
            made.load_params(self.params)
        return made

    def machine(self, device: Device | None = None) -> VirtualMachine:
        """The program, ready to be called; by default on the first device of its kind."""
        library = self.library()
        if getattr(library, "type_key", "") != "vm":
            raise LoadError(f"{self.path}: damaged: {self.lib_name} is not a program; compile it again")
        return VirtualMachine(library, device)

    def library(self) -> Module:
        """The library, after a check that this machine can run it."""
        try:
            loaded = load_module(self.lib_path)
        except TVMError as error:  # the user does not know its folder
            raise LoadError(f"{self.path}: {str(error).replace(self.lib_path, self.lib_name)}") from None
        needed = self.about.get("features")
        missing = sorted(set(map(str, needed)) - host_features()) if isinstance(needed, list) else []
        if missing:
            raise LoadError(
                f"{self.path}: it was compiled for {self.target} with {', '.join(missing)}, which this machine "
                "lacks; compile it here, or for an older CPU (-mcpu=x86-64-v3)"
            )
        return loaded


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
        files[GRAPH] = graph.encode()
        files[PARAMS] = save_param_dict(params or {})
    archive.write(path, archive.PACKAGE, {**about, "library": library.name}, files)
