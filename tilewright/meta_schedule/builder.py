"""Builders: from a scheduled program to a library in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compiler.build import build
from ..ir.errors import TVMError
from ..ir.module import IRModule
from ..target import Target
from ..tune.measure.measurer import MeasureOptions


@dataclass(eq=False)
class BuilderInput:
    """A program to be built for a target."""

    mod: IRModule
    target: Target
    params: Mapping[str, Any] | None = None


@dataclass(eq=False)
class BuilderResult:
    """The file of a library, or the reason why there is none."""

    artifact_path: str | None
    error_msg: str | None = None


class Builder:
    """Builds the candidates of a search."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build programs, one after the other."""
        raise NotImplementedError(f"{type(self).__name__} must override build(build_inputs)")

    @staticmethod
    def create(kind: Any = "local", *args: Any, **kwargs: Any) -> Builder:
        """A builder by its name: local."""
        if isinstance(kind, Builder):
            return kind
        if kind != "local":
            raise ValueError(f"there is no builder {kind!r}; there is local")
        return LocalBuilder(*args, **kwargs)


class PyBuilder(Builder):
    """A builder of your own: override `build`."""


class LocalBuilder(Builder):
    """Builds in processes of this machine while a search runs, and in this process when it is called by hand.

    `f_build(mod, target, params)` returns a module, and `f_export(module)` the file of a library.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: Callable[..., Any] | None = None,
        f_export: Callable[..., str] | None = None,
        initializer: Callable[[], None] | None = None,
    ) -> None:
        if initializer is not None:
            initializer()
        self.max_workers, self.timeout_sec = max_workers, timeout_sec
        self.f_build, self.f_export = f_build, f_export

    @property
    def own(self) -> bool:
        """Whether the engine's processes build; functions of users run in this process."""
        return self.f_build is None and self.f_export is None

    def options(self) -> MeasureOptions:
        return MeasureOptions(builders=self.max_workers, build_limit=self.timeout_sec)

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [self._built(each) for each in build_inputs]

    def _built(self, given: BuilderInput) -> BuilderResult:
        try:
            made = (self.f_build or _build)(given.mod, given.target, given.params)
            return BuilderResult((self.f_export or _export)(made))
        except TVMError as error:
            return BuilderResult(None, str(error))


def _build(mod: IRModule, target: Target, params: Any) -> Any:
    return build(mod, target=target)


def _export(module: Any) -> str:
    path = Path(tempfile.mkdtemp(prefix="tilewright-artifact-")) / "candidate.so"
    module.export_library(str(path))
    return str(path)


create = Builder.create
