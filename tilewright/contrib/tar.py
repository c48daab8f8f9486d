"""Object files in an archive, which `load_module` links: `export_library("net.tar", fcompile=tar.tar)`."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence

from ..runtime.link import pack_objects


def tar(
    output: str | os.PathLike[str], files: str | Sequence[str], options: Sequence[str] | None = None
) -> None:
    """Put files into an archive, each under its last name."""
    pack_objects(output, [files] if isinstance(files, (str, os.PathLike)) else list(files))


def untar(tar_file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Take the files out of an archive."""
    with tarfile.open(tar_file) as archive:
        archive.extractall(directory, filter="data")


tar.output_format = "tar"  # type: ignore[attr-defined]
