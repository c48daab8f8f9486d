"""A seal at the end of a file: a checksum of its contents, so that damage is detected before any code runs.

    content │ mark │ SHA-256 of the content              ELF, tar
    content │ // tilewright sum 5f2a… in hexadecimal     a text in which that is a comment

Linkers and tar ignore it. It protects against damage, not against malice: anyone who can write the file can seal it
again. A file without a seal (of a C compiler, of tar, of an earlier version) is accepted.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from typing import Final

from .errors import LoadError

MARK: Final = b"\0\0tilewright sum\n"
_TAIL: Final = b"wright sum"  # the end of the marks of both kinds; the name alone may occur in any file
_ENOUGH: Final = 6  # bytes of it, with the space, that cannot occur by chance
_SUM: Final = hashlib.sha256().digest_size
_COMMENT: Final = b"// tilewright sum "
_ELF, _TAR = (0, b"\x7fELF"), (257, b"ustar")


def checksum(*parts: bytes | memoryview) -> bytes:
    """The checksum of bytes in several parts."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.digest()


def sealed(data: bytes) -> bytes:
    """Bytes with a seal at their end."""
    return data + MARK + checksum(data)


def seal(path: str | os.PathLike[str]) -> None:
    """Seal an ELF file or a tar archive, once; other kinds of files stay as they are."""
    with open(path, "r+b") as file:
        head = file.read(512)
        if not any(head[at : at + len(magic)] == magic for at, magic in (_ELF, _TAR)):
            return
        file.seek(0)
        data = file.read()
        if data[-len(MARK) - _SUM : -_SUM] != MARK:
            file.write(MARK + checksum(data))


def sealed_text(text: str) -> bytes:
    """A text of C-like comments with a seal as its last line."""
    data = text.rstrip("\n").encode() + b"\n"
    return data + _COMMENT + checksum(data).hex().encode() + b"\n"


def unsealed_text(data: bytes, where: str) -> bytes:
    """The text without its seal; refuses a text that does not match it."""
    at = len(data) - len(_COMMENT) - 2 * _SUM - 1
    marked = at >= 0 and data[at : at + len(_COMMENT)] == _COMMENT and data.endswith(b"\n")
    if marked and data[at + len(_COMMENT) : -1] == checksum(data[:at]).hex().encode():
        return data[:at]
    if marked or _was_marked(data):
        raise LoadError(
            f"{where}: the file is damaged: its text does not match the checksum in its last line; export or copy it "
            "again, or remove that line if you have edited the text"
        )
    return data


def check_seal(data: bytes | mmap.mmap, where: str) -> int:
    """The number of sealed bytes, or the length if there is no seal; refuses content that does not match the seal."""
    size = len(data) - len(MARK) - _SUM
    if size <= 0:
        return len(data)
    if data.rfind(MARK, size + 1) >= 0:
        raise LoadError(f"{where}: the file is truncated: it ends within the checksum at its end")
    marked = data[size : size + len(MARK)] == MARK
    with memoryview(data) as view, view[:size] as before:
        whole = checksum(before) == data[-_SUM:]
    if marked != whole or (not marked and _was_marked(data)):  # the mark itself may be damaged
        raise LoadError(
            f"{where}: the file is damaged: its content does not match the checksum that was written at export; "
            "export or copy it again"
        )
    return size if marked else len(data)


def _was_marked(data: bytes | mmap.mmap) -> bool:
    """Whether a damaged mark is near the end: half of it at its position, or a distinctive part of it."""
    end = bytes(data[-4 * (len(MARK) + _SUM) :])
    place = end[-len(MARK) - _SUM : -_SUM]
    if sum(a == b for a, b in zip(place, MARK, strict=False)) > len(MARK) // 2:
        return True
    parts = (_TAIL[i : i + _ENOUGH] for i in range(len(_TAIL) - _ENOUGH + 1))
    return any(b" " in part and part in end for part in parts)
