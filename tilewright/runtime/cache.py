"""A cache on disk, keyed by the inputs of each result.

    store = DiskCache(folder, limit)
    key = digest("object code", text, cpu, version)
    found = store.get(key)                  # None, or the bytes that were put
    if found is None:
        store.put(key, made)

Any number of processes may share a folder: an entry is written atomically, and has a checksum. An unreadable entry is a
miss. The least recently used entries are evicted when there are too many.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import config
from ..forks import new_in_child

_MAGIC = b"tilewright cache 1\n"
_SUM = hashlib.sha256().digest_size
_HOUR = 3600.0
_MARK = ".swept"


def digest(*parts: str | bytes | int | bool | float | None) -> str:
    """The key of a list of values: equal lists give equal keys, others do not."""
    state = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        state.update(b"%s %d\n" % (type(part).__name__.encode(), len(data)))
        state.update(data)
    return state.hexdigest()


class DiskCache:
    """A folder of entries named by their keys, at most `limit` bytes of them."""

    def __init__(self, folder: str | os.PathLike[str], limit: int) -> None:
        self.folder, self.limit = Path(folder), limit
        self.hits = self.misses = 0
        self._written = 0
        self._swept = False
        self._warned = False
        self._private: bool | None = None  # whether only this user can write to it; None if not checked yet
        self._lock = new_in_child(threading.Lock())

    def __repr__(self) -> str:
        return f"<DiskCache {self.folder}: {self.hits} hits, {self.misses} misses>"

    # -- entries -----------------------------------------------------------------------------------
    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The entry of a key; None if there is no intact one."""
        path = self.path(key)
        data = _own_bytes(path) if self.usable() else None
        if data is None:
            self.misses += 1
            return None
        start = len(_MAGIC) + _SUM
        body = data[start:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
            self.misses += 1
            _remove(path)
            return None
        self.hits += 1
        with contextlib.suppress(OSError):
            os.utime(path)  # mark as recently used
        return body

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under a key. If that is not possible, warn once and store nothing."""
        path = self.path(key)
        if len(data) > self.limit or not self.usable():
            return
        try:
            make_private(path.parent)
            handle, scratch = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(data).digest())
                    file.write(data)
                os.replace(scratch, path)
            except BaseException:
                _remove(Path(scratch))
                raise
        except OSError as error:
            self._warn_once(error)
            return
        with self._lock:
            self._written += len(data)
            much = self._written * 16 > self.limit
            due = much or not self._swept
            if due:
                self._written, self._swept = 0, True
        if due:
            self._sweep_if_due(much)

    def usable(self) -> bool:
        """Whether no other user can add entries: an entry is machine code that this process runs."""
        if self._private is None:
            why = shared_with(self.folder)
            self._private = not why
            if why:
                self._warned = True
                warnings.warn(
                    f"the cache folder {self.folder} is not used: {why}, and its entries are code that runs here; make "
                    f"it yours alone (chown, chmod go-w), or set {config.cache_dir.variable} to a folder that is",
                    RuntimeWarning,
                    stacklevel=4,
                )
        return self._private

    # -- size --------------------------------------------------------------------------------------
    def _sweep_if_due(self, surely: bool) -> None:
        """Evict entries, unless a process did so within the hour and this one has written little since."""
        mark = self.folder / _MARK
        with contextlib.suppress(OSError):
            if not surely and time.time() - mark.stat().st_mtime < _HOUR:
                return
        with contextlib.suppress(OSError):
            mark.touch()
        self.sweep()

    def sweep(self) -> None:
        """Evict the least recently used entries until the rest fits seven eighths of the limit."""
        now = time.time()
        found: list[tuple[float, int, str]] = []
        for entry in _entries(self.folder):
            with contextlib.suppress(OSError):
                state = entry.stat()
                if entry.name.startswith("."):
                    if now - state.st_mtime > _HOUR:  # left by a process that ended while it wrote
                        _remove(Path(entry.path))
                    continue
                found.append((state.st_mtime, state.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return
        for _, size, path in sorted(found):
            if total <= self.limit * 7 // 8:
                break
            _remove(Path(path))
            total -= size

    def clear(self) -> None:
        """Remove every entry."""
        for entry in _entries(self.folder):
            _remove(Path(entry.path))

    def _warn_once(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"nothing can be stored in the cache folder {self.folder}: {error.strerror or error}; set "
                f"{config.cache_dir.variable} to a folder that can be written, or {config.cache.variable}=0",
                RuntimeWarning,
                stacklevel=3,
            )


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The files of entries, finished or not."""
    for shelf in _scan(folder):
        if len(shelf.name) == 2 and shelf.is_dir(follow_symlinks=False):
            yield from _scan(shelf.path)


def _scan(folder: str | Path) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def shared_with(folder: Path) -> str:
    """The reason why another user could change the contents of a folder, by writing to it or by replacing it; empty if
    none could."""
    if os.name != "posix":
        return ""
    place = Path(os.path.realpath(folder))
    for at in (place, *place.parents):
        try:
            state = at.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # it will be created for this user alone, or cannot be
        except OSError as error:
            return f"{at} cannot be inspected ({error.strerror})"
        if at == at.parent:
            break  # the root of the file system is trusted
        # In a sticky folder users cannot replace files of others.
        sticky = at != place and bool(state.st_mode & stat.S_ISVTX)
        why = _not_alone(state, sticky)
        if why:
            return f"{at} {why}"
    return ""


def _not_alone(state: os.stat_result, sticky: bool = False) -> str:
    if state.st_uid not in (os.getuid(), 0):
        return f"belongs to another user (uid {state.st_uid})"
    if state.st_mode & stat.S_IWOTH and not sticky:
        return "may be written to by every user"
    # a group with the number of the user is private to the user
    if state.st_mode & stat.S_IWGRP and not sticky and state.st_gid not in (0, state.st_uid):
        return f"may be written to by a group (gid {state.st_gid})"
    return ""


def _own_bytes(path: Path) -> bytes | None:
    """The contents of a file of this user; None if it does not exist, or others could have written it."""
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            if os.name == "posix" and (
                _not_alone(os.fstat(file.fileno())) or _not_alone(path.parent.lstat())
            ):
                return None
            return file.read()
    except OSError:
        return None


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, accessible to this user only."""
    for at in reversed([at for at in (folder, *folder.parents) if not at.exists()]):
        at.mkdir(mode=0o700, exist_ok=True)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


_stores: dict[tuple[Path, int], DiskCache] = {}


def compiled_code() -> DiskCache | None:
    """The cache of machine code by the current configuration; None if it is disabled."""
    if not config.cache.value:
        return None
    try:
        where = (config.cache_dir.value, config.cache_size.value << 20)
    except RuntimeError:  # a user without a home has no cache
        return None
    found = _stores.get(where)
    if found is None:
        found = _stores.setdefault(where, DiskCache(*where))
    return found
