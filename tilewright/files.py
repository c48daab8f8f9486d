"""Files that are written whole or not at all.

    with written_whole("net.so") as part:     # a name beside net.so, which nobody looks at
        link(part)
    # now net.so is the new file; had `link` failed, it would be as it was

A symbolic link is followed, so that the file it names is replaced. What is not a plain file (a device, a pipe, a
socket, /dev/stdout) is never replaced: it gets the bytes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

Name = str | os.PathLike[str]
_STREAMS = ("/dev", "/proc")  # folders whose names stand for what is open, whatever kind it is


def is_stream(path: Name) -> bool:
    """Whether a name stands for a device, a pipe, a socket or what is open already, and not for a plain file."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    if os.path.lexists(path) and any(folder == f or folder.startswith(f + "/") for f in _STREAMS):
        return not folder.startswith("/dev/shm")
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def written_whole(path: Name) -> Iterator[str]:
    """A name to write the content of `path` to; when the block is left, `path` has all of it."""
    if is_stream(path):
        import tempfile

        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            part = os.path.join(folder, os.path.basename(os.fspath(path)))
            yield part
            with open(part, "rb") as made, open(path, "wb") as stream:
                shutil.copyfileobj(made, stream, 1 << 22)
        return
    place = os.path.realpath(path)
    folder, name = os.path.split(place)
    stem, kind = os.path.splitext(name)
    # Names in a folder have 255 bytes; the kind stays, for tools that go by it.
    part = os.path.join(folder, f".{stem[:32]}-{os.getpid()}-{os.urandom(4).hex()}{kind}")
    try:
        yield part
        with suppress(FileNotFoundError):
            shutil.copymode(place, part)  # of the file that it replaces
        os.replace(part, place)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError) and error.filename == part:
            error.filename, error.filename2 = os.fspath(path), None  # what the user knows
        raise


def write_whole(path: Name, content: str | bytes) -> None:
    """Write a file, whole or not at all; text is UTF-8."""
    with written_whole(path) as part, open(part, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
