"""Temporary folders for build products."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator


class TempDirectory:
    """A folder that is removed with this object, unless it is `custom_path` or `keep_for_debug` is set."""

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool = False) -> None:
        if custom_path:
            os.makedirs(custom_path, exist_ok=True)
            self.temp_dir = custom_path
        else:
            self.temp_dir = tempfile.mkdtemp(prefix="tilewright-")
        # A folder that the caller named is not removed.
        self._cleanup = None
        if not custom_path and not keep_for_debug:
            self._cleanup = weakref.finalize(self, shutil.rmtree, self.temp_dir, ignore_errors=True)

    @property
    def path(self) -> str:
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """The full path of a file in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """The names in the folder."""
        return os.listdir(self.temp_dir)

    def remove(self) -> None:
        """Delete the folder now."""
        if self._cleanup is not None:
            self._cleanup()
        else:
            shutil.rmtree(self.temp_dir, ignore_errors=True)

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __truediv__(self, name: str) -> str:
        return self.relpath(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.listdir())


def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory(custom_path, keep_for_debug)
