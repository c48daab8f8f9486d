"""The old name of `contrib.utils`."""

from .utils import TempDirectory, tempdir

__all__ = ["TempDirectory", "tempdir"]
