"""Files that are written whole or not at all, and what is not a file and must stay what it is."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.files import is_stream, write_whole, written_whole
from tilewright.runtime.params import save_param_dict_to_file


def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "name.txt"
    write_whole(place, "old")
    place.chmod(0o640)
    with pytest.raises(ZeroDivisionError), written_whole(place) as part:
        Path(part).write_text("half")
        raise ZeroDivisionError
    assert place.read_text() == "old" and list(tmp_path.iterdir()) == [place]
    write_whole(place, b"new")
    assert place.read_bytes() == b"new" and stat.S_IMODE(place.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [place]


def test_a_new_file_has_the_rights_that_others_have(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", "x")
    (tmp_path / "theirs").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    dangling.symlink_to(tmp_path / "there" / "made")
    write_whole(dangling, "made")
    assert dangling.is_symlink() and (tmp_path / "there" / "made").read_text() == "made"


def test_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, "through")
    reader.join()
    assert got == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_devices_and_sockets_stay_what_they_are(tmp_path: Path) -> None:
    write_whole(os.devnull, "gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    alias = tmp_path / "null"
    alias.symlink_to(os.devnull)
    write_whole(alias, "gone")
    assert alias.is_symlink() and stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match=r"socket"):  # nobody can open one
            write_whole(tmp_path / "socket", "gone")
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)


def test_what_is_open_is_written_to(tmp_path: Path) -> None:
    """/dev/fd/n may stand for a file: whoever opened it waits for the bytes in that very file."""
    with open(tmp_path / "file", "w+b") as file:
        assert is_stream(f"/dev/fd/{file.fileno()}")
        write_whole(f"/dev/fd/{file.fileno()}", "bytes")
        assert file.read() == b"bytes"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "none" / "file", "x")
    assert caught.value.filename == str(tmp_path / "none" / "file")


def test_libraries_and_parameters_do_not_replace_devices(tmp_path: Path) -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    built = tvm.build(te.create_schedule(B.op), [A, B], "llvm")
    alias = tmp_path / "lib.so"
    alias.symlink_to(os.devnull)
    built.export_library(str(alias))
    built.save(str(alias), "o")
    save_param_dict_to_file({"x": np.ones(3, "float32")}, alias)
    assert alias.is_symlink() and stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert list(tmp_path.iterdir()) == [alias]
