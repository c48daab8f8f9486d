"""Storage of the figures that `tilewright calibrate` measures; targets look them up here.

    ~/.config/tilewright/machines/cpu-znver4-8.json      this computer's processor, for targets that mean this machine
                                  cuda-nvidia-h200.json  a GPU, for CUDA targets of its architecture

A file holds figures by name (`CpuMachine.figures`, `gpu_figures`), and which machine they belong to. It is checked when
it is read: an unusable file causes a warning, and the table of known machines is used instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .. import config
from ..files import write_whole
from ..ir.errors import TargetError
from ..ir.say_once import say_once
from ..ir.serialize import read_json
from ..version import __version__

_FORMAT: Final = 1
_CPU, _CUDA = "cpu", "cuda"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured figures of one machine. `machine` identifies it: the name and the number of cores of a CPU; the name,
    the architecture and the number of SMs of a GPU."""

    kind: str  # "cpu" or "cuda"
    machine: Mapping[str, Any]
    figures: Mapping[str, int | float]

    @property
    def path(self) -> Path:
        """The file of the machine."""
        words = [self.kind, *(str(v) for k, v in self.machine.items() if k in ("name", "cores"))]
        name = "-".join(re.sub(r"[^a-z0-9]+", "-", w.lower()).strip("-") for w in words)
        return folder() / f"{name}.json"


def folder() -> Path:
    """The folder of all calibrations of the user."""
    return config.config_dir.value / "machines"


def keep(found: Calibration) -> Path:
    """Write a calibration; the file of the same machine is replaced."""
    path = found.path
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "format": _FORMAT, "package": __version__, "kind": found.kind, "machine": dict(found.machine),
        "figures": dict(found.figures),
    }  # fmt: skip
    write_whole(path, json.dumps(data, indent=2) + "\n")  # another process may be reading
    return path


def read(path: Path) -> Calibration:
    """The calibration in a file. Its figures are checked against those of the machine when it is used."""
    try:
        data = read_json(path.read_bytes(), str(path))
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise TargetError(str(error)) from None
    if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
        raise TargetError(f"{path} is not a calibration of format {_FORMAT}")
    kind, machine, figures = (data.get(k) for k in ("kind", "machine", "figures"))
    if kind not in (_CPU, _CUDA) or not isinstance(machine, Mapping) or not isinstance(figures, Mapping):
        raise TargetError(f"{path}: a calibration says `kind`, `machine` and `figures`")
    if not isinstance(machine.get("name"), str):
        raise TargetError(f"{path}: `machine` has no `name`")
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in figures.values()):
        raise TargetError(f"{path}: each of `figures` is a number")
    return Calibration(kind, machine, figures)


def calibrations(kind: str) -> dict[Path, Calibration]:
    """All calibrations of a kind that can be read; a warning names the others."""
    found = {}
    try:
        paths = sorted(folder().glob(f"{kind}-*.json"))
    except OSError:
        return {}
    for path in paths:
        one = _read_once(path)
        if one is not None and one.kind == kind:
            found[path] = one
    return found


_known: Final[dict[tuple[str, int, int], Calibration | None]] = {}


def _read_once(path: Path) -> Calibration | None:
    """The calibration in a file, read again only when the file has changed."""
    try:
        stat = path.stat()
    except OSError:
        return None
    key = (str(path), stat.st_mtime_ns, stat.st_size)
    if key not in _known:
        try:
            _known[key] = read(path)
        except TargetError as error:
            unusable(str(error))
            _known[key] = None
    return _known[key]


def unusable(why: str) -> None:
    """Warn that a calibration is not used."""
    say_once(
        f"{why}; its figures are not used, those of the table of known machines are: run `tilewright calibrate` again, "
        "or `tilewright calibrate --remove`",
        UserWarning,
    )


def calibrated(kind: str, **machine: Any) -> tuple[Path, Calibration] | None:
    """The calibration of the machine with all these properties, if there is one."""
    path = Calibration(kind, machine, {}).path
    one = _read_once(path)
    fits = one is not None and all(one.machine.get(k) == v for k, v in machine.items())
    return (path, one) if one is not None and fits else None
