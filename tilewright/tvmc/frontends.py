"""Import of models from files, with the errors of tvmc."""

from __future__ import annotations

import os
from typing import Any

from ..model import files
from ..model.files import SUFFIXES as SUFFIXES
from ..model.files import get_frontend_names as get_frontend_names
from .errors import TVMCException, TVMCImportError, as_classic
from .model import TVMCModel


class ModelError(files.ModelError, TVMCException):
    """A file that is not read as a model: which, why, and what to do."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """A model whose file is not there."""


class PackageMissingError(ModelError, TVMCImportError):
    """A model whose framework is not installed."""


_CLASSIC = {
    files.ModelNotFoundError: ModelNotFoundError,
    files.PackageMissingError: PackageMissingError,
}


def load_model(
    path: str | os.PathLike[str],
    model_format: str | None = None,
    shape_dict: files.Shapes | None = None,
    **kwargs: Any,
) -> TVMCModel:
    """The model in a file: see `tilewright.model.files.load_model`."""
    try:
        with as_classic():
            return TVMCModel(*files.load_model(path, model_format, shape_dict, **kwargs))
    except files.ModelError as error:
        raise _CLASSIC.get(type(error), ModelError)(str(error)) from error.__cause__
