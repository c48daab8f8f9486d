"""Files from the network, kept in a cache folder."""

from __future__ import annotations

import os
import shutil
import urllib.request
from pathlib import Path

from ..files import written_whole


def download(
    url: str,
    path: str | os.PathLike[str],
    overwrite: bool = False,
    size_compare: bool = False,
    retries: int = 3,
) -> None:
    """Download a file; an existing one is kept, unless `overwrite` or `size_compare` says otherwise."""
    target = Path(path)
    if target.exists() and not overwrite:
        if not size_compare or target.stat().st_size == _remote_size(url):
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    last: Exception | None = None
    for _ in range(max(1, retries)):
        try:
            with (
                written_whole(target) as part,
                urllib.request.urlopen(url, timeout=60) as answer,
                open(part, "wb") as file,
            ):
                shutil.copyfileobj(answer, file)
            return
        except OSError as error:
            last = error
    raise OSError(f"cannot download {url} to {target}: {last}") from last


def _remote_size(url: str) -> int | None:
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=60) as answer:
        length = answer.headers.get("Content-Length")
    return int(length) if length else None


def download_testdata(
    url: str,
    relpath: str,
    module: str | list[str] | None = None,
    overwrite: bool = False,
    size_compare: bool = False,
) -> str:
    """Fetch a file into the cache of test data and say where it is."""
    root = Path(os.environ.get("TILEWRIGHT_CACHE_DIR") or Path.home() / ".cache" / "tilewright") / "testdata"
    parts = [module] if isinstance(module, str) else list(module or ())
    target = root.joinpath(*parts, relpath)
    if not target.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{relpath!r} is outside the cache of test data")
    download(url, target, overwrite, size_compare)
    return str(target)
