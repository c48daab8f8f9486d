"""Tar archives from untrusted sources: a few files with known names, and nothing else."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import written_whole
from .errors import LoadError, TVMError
from .json_reader import read_json
from .link import check_archive, seal_archive

METADATA = "metadata.json"
PACKAGE, SAVED_MODEL = "package", "model"
FORMAT = 1
_LIMIT = 1 << 20  # bytes of metadata


def write(path: Path, kind: str, about: Mapping[str, Any], files: Mapping[str, bytes | Path]) -> None:
    """Write an archive atomically. Equal contents give equal bytes."""
    text = json.dumps({"kind": kind, "format": FORMAT, **about}, indent=1).encode()
    try:
        with written_whole(path) as part:
            with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
                for name, content in {METADATA: text, **files}.items():
                    entry = tarfile.TarInfo(name)
                    if isinstance(content, Path):
                        entry.size = content.stat().st_size
                        with content.open("rb") as file:
                            tar.addfile(entry, file)
                    else:
                        entry.size = len(content)
                        tar.addfile(entry, io.BytesIO(content))
                end = tar.offset
            seal_archive(part, end)
    except OSError as error:
        raise LoadError(f"{path}: cannot be written: {error.strerror or error}") from None


def unpack(path: Path, folder: Path, kind: str, names: Collection[str]) -> dict[str, Any]:
    """Unpack an archive into a folder. Returns its metadata.

    Members must be plain files with one of the given names, so that nothing is written elsewhere.
    """
    about = read_metadata(path)
    check_archive(str(path))
    if about["kind"] != kind:
        raise LoadError(
            f"{path}: is a {about['kind']}, and a {kind} is needed here; {_REMEDY[about['kind']]}"
        )
    try:
        with tarfile.open(path, "r:") as tar:
            seen: set[str] = set()
            for member in tar:
                if not member.isfile() or member.issparse() or member.name not in {METADATA, *names}:
                    raise LoadError(
                        f"{path}: the member {member.name!r} does not belong in a {kind}, "
                        f"which has {', '.join(sorted(names))}"
                    )
                if member.name in seen:
                    raise LoadError(f"{path}: damaged: {member.name!r} appears twice")
                seen.add(member.name)
                source = tar.extractfile(member)
                assert source is not None  # it is a file
                with source, (folder / member.name).open("wb") as target:
                    while piece := source.read(1 << 22):
                        target.write(piece)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise LoadError(f"{path}: damaged: {error}") from None
    return about


@contextmanager
def parts_of(path: Path) -> Iterator[None]:
    """Name the archive in errors about an unpacked file."""
    try:
        yield
    except FileNotFoundError as error:
        raise LoadError(f"{path}: damaged: it lacks {Path(error.filename).name}") from None
    except UnicodeDecodeError as error:
        raise LoadError(f"{path}: damaged: a part of it is not text ({error})") from None
    except TVMError as error:
        raise LoadError(f"{path}: damaged: {error}") from error


_REMEDY = {
    SAVED_MODEL: "compile it first (tvmc.compile, tilewright compile)",
    PACKAGE: "it is compiled already: run it (tvmc.run, tilewright run)",
}


def read_metadata(path: Path) -> dict[str, Any]:
    """The checked metadata of an archive."""
    foreign = f"{path}: is neither a package nor a saved model of tilewright"
    try:
        with tarfile.open(path, "r:") as tar:
            first = tar.next()
            if first is None or first.name != METADATA or not first.isfile() or first.size > _LIMIT:
                raise LoadError(f"{foreign}: it does not begin with {METADATA}")
            source = tar.extractfile(first)
            assert source is not None
            about = read_json(source.read(), f"{path}: damaged: {METADATA}")
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise LoadError(f"{foreign} ({error})") from None
    if not isinstance(about, dict) or about.get("kind") not in _REMEDY:
        raise LoadError(foreign)
    if about.get("format") != FORMAT:
        raise LoadError(
            f"{path}: has format {about.get('format')!r}, and this version reads {FORMAT}: make it again"
        )
    return about
