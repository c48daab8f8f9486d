"""Models, packages and results, which the steps of tvmc pass on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import written_whole
from ..ir.module import IRModule
from ..model.files import Imported, load_imported, save_imported
from ..runtime.package import Package
from ..runtime.timing import BenchmarkResult
from .errors import TVMCException, as_classic

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.devices import Device
    from ..runtime.graph_module import GraphModule
    from ..runtime.profiling import Profile
    from ..runtime.vm import VirtualMachine


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
        with as_classic():
            save_imported(Imported(self.mod, self.params, self.name), Path(model_path))

    @staticmethod
    def load(model_path: str | os.PathLike[str]) -> TVMCModel:
        """Read an archive of `save`."""
        with as_classic():
            return TVMCModel(*load_imported(Path(model_path)))

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
    """A compiled model in one file.

    The archive is unpacked into a folder that lives as long as this object, or into `project_dir`.
    """

    type = "classic"

    def __init__(
        self,
        package_path: str | os.PathLike[str],
        project_dir: str | os.PathLike[str] | None = None,
        holder: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.package_path = str(Path(package_path))
        self._holder = holder
        with as_classic():
            self.inner = Package(package_path, project_dir)
        found = self.inner
        self.about, self.target, self.executor_type = found.about, found.target, found.executor_type
        self.lib_name, self.lib_path = found.lib_name, found.lib_path
        self.graph, self.params = found.graph, found.params

    def executor(self, device: Device) -> GraphModule:
        """The model with its parameters, ready to run."""
        with as_classic():
            return self.inner.executor(device)

    def machine(self, device: Device) -> VirtualMachine:
        """The program, ready to be called."""
        with as_classic():
            return self.inner.machine(device)

    def __repr__(self) -> str:
        return f"TVMCPackage({self.package_path}, {self.target})"


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
