"""Saved things carry a checksum: what was damaged is refused, by name, before anything of it runs."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tvmc
from tilewright.contrib import graph_executor
from tilewright.runtime import archive
from tilewright.runtime.device_module import DeviceModule
from tilewright.runtime.errors import LoadError
from tilewright.runtime.link import find_cc
from tilewright.runtime.seal import MARK, check_seal, seal, sealed

SEAL = len(sealed(b""))


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> Path:
    """A folder with a library of each kind, a package and a saved model."""
    folder = tmp_path_factory.mktemp("files")
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    built = tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="plus")
    for name in ("f.o", "f.tar", "f.so"):
        built.save(str(folder / name)) if name == "f.o" else built.export_library(str(folder / name))
    x = relay.var("x", shape=(1, 4))
    body = relay.nn.dense(x, relay.const(np.arange(12, dtype="float32").reshape(3, 4)))
    model = tvmc.TVMCModel(tvm.IRModule.from_expr(relay.Function([x], body)), {})
    model.save(folder / "model.tar")
    tvmc.compile(model, target="llvm", package_path=str(folder / "package.tar"))
    return folder


def load(path: Path) -> Any:
    if path.name == "package.tar":
        return tvmc.TVMCPackage(path)
    return tvmc.load(str(path)) if path.name == "model.tar" else tvm.runtime.load_module(str(path))


KINDS = ["f.o", "f.tar", "f.so", "package.tar", "model.tar"]


@pytest.mark.parametrize("name", KINDS)
def test_each_file_carries_a_seal(files: Path, name: str) -> None:
    assert (files / name).read_bytes()[-SEAL:].startswith(MARK)
    load(files / name)


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_byte_is_refused(files: Path, tmp_path: Path, name: str) -> None:
    data = (files / name).read_bytes()
    path = tmp_path / name
    for at in (len(data) // 3, len(data) // 2, len(data) - SEAL + 3, len(data) - 1):
        worn = bytearray(data)
        worn[at] ^= 0x10
        path.write_bytes(worn)
        with pytest.raises(tvm.TVMError, match=rf"{name}: the file is damaged: .*checksum"):
            load(path)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_lost_its_end_is_refused(files: Path, tmp_path: Path, name: str) -> None:
    data = (files / name).read_bytes()
    path = tmp_path / name
    for left in (len(data) - 5, len(data) - SEAL - 600, len(data) // 2):
        path.write_bytes(data[:left])
        with pytest.raises(tvm.TVMError, match=rf"{name}: .*truncated"):
            load(path)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_an_earlier_version_has_no_seal_and_is_loaded(
    files: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes((files / name).read_bytes()[:-SEAL])
    load(path)


def test_an_object_file_of_a_c_compiler_is_loaded(tmp_path: Path) -> None:
    about = r"{\"format\": 1, \"functions\": []}"
    (tmp_path / "f.c").write_text(f'const char __tw_metadata[] = "{about}";\n')
    cc = find_cc()
    assert cc is not None
    subprocess.run([*cc, "-c", "-fPIC", "f.c", "-o", "f.o"], cwd=tmp_path, check=True)
    assert tvm.runtime.load_module(str(tmp_path / "f.o")).function_names == []


def test_sealing_twice_changes_nothing(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.so"
    path.write_bytes((files / "f.so").read_bytes())
    seal(path)
    assert path.read_bytes() == (files / "f.so").read_bytes()
    other = tmp_path / "f.wasm"
    other.write_bytes(b"\0asm\1\0\0\0")
    seal(other)
    assert other.read_bytes() == b"\0asm\1\0\0\0"


def test_an_archive_says_nothing_of_who_packed_it(files: Path) -> None:
    for name in ("f.tar", "package.tar"):
        with tarfile.open(files / name) as tar:
            for member in tar:
                assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
                assert member.mode == 0o644


# ---------------------------------------------------------------------------- more than a file holds
def test_a_compressed_archive_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("big.o")
        entry.size = 1 << 26
        tar.addfile(entry, io.BytesIO(bytes(1 << 26)))
    path = tmp_path / "bomb.tar"
    path.write_bytes(gzip.compress(made.getvalue()))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(tarfile.TarFile, "extract", None)  # nothing is unpacked
    with pytest.raises(LoadError, match=r"bomb\.tar: the archive is compressed with gzip; decompress it"):
        tvm.runtime.load_module(str(path))


def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("big.o")
    entry.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    head[386:410] = b"%011o\0%011o\0" % (0, 0)  # one piece, of nothing
    head[483:495] = b"%011o\0" % (3 << 30)  # the size that it would have
    head[148:156] = b"%06o\0 " % (sum(head[:148]) + sum(head[156:]) + 8 * 32)
    path = tmp_path / "sparse.tar"
    path.write_bytes(bytes(head) + bytes(1024))
    with pytest.raises(LoadError, match=r"sparse\.tar: the member 'big\.o' is not a plain file"):
        tvm.runtime.load_module(str(path))


# ---------------------------------------------------------------------------- parameters
def test_parameters_carry_a_checksum(tmp_path: Path) -> None:
    data = bytearray(relay.save_param_dict({"w": np.arange(5, dtype="float32")}))
    data[-3] ^= 1
    path = tmp_path / "net.params"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"net\.params: damaged: its content does not match its checksum"):
        tvm.runtime.load_param_dict_from_file(str(path))


def test_parameters_of_others_have_no_checksum() -> None:
    text = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    read = relay.load_param_dict(struct.pack("<Q", len(text)) + text + struct.pack("<f", 2.5))
    assert read["w"].numpy() == [2.5]


@pytest.mark.parametrize("shape", [[2**62, 4, 0], [1] * 100])
def test_a_parameter_whose_shape_is_no_array(shape: list[int]) -> None:
    size = 0 if 0 in shape else 4
    text = f'{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{size}]}}}}'.encode()
    with pytest.raises(
        LoadError, match=r"parameter 'w' are not non-negative integers|parameter .w. has 100 dimensions"
    ):
        relay.load_param_dict(struct.pack("<Q", len(text)) + text + bytes(size))


# ---------------------------------------------------------------------------- JSON
DEEP = b"[" * 100_000


def test_deep_json_is_refused_everywhere(files: Path, tmp_path: Path) -> None:
    from tilewright.runtime.metadata import parse_metadata
    from tilewright.runtime.vm import Executable

    with pytest.raises(LoadError, match="nested more than 256 levels deep"):
        relay.load_param_dict(struct.pack("<Q", len(DEEP)) + DEEP)
    with pytest.raises(LoadError, match=r"f\.so: the library's metadata is damaged: the JSON is nested more"):
        parse_metadata(DEEP, "f.so")
    library = tvm.runtime.load_module(str(files / "f.so"))
    with pytest.raises(LoadError, match="the program is damaged: the JSON is nested more"):
        Executable.load_exec(b"TWVM\1\0\0\0" + struct.pack("<Q", len(DEEP)) + DEEP, library)
    model = tvmc.TVMCPackage(files / "package.tar")
    with pytest.raises(tvm.TVMError, match=r"not the JSON of a compiled model: .*nested more"):
        graph_executor.create(DEEP.decode(), model.inner.library(), tvm.cpu())
    path = tmp_path / "package.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("metadata.json")
        entry.size = len(DEEP)
        tar.addfile(entry, io.BytesIO(DEEP))
    with pytest.raises(tvm.TVMError, match=r"package\.tar: damaged: metadata\.json: the JSON is nested more"):
        tvmc.TVMCPackage(path)


# ---------------------------------------------------------------------------- memory
WRITABLE_CODE = """
import ctypes

def pages():
    with open("/proc/self/maps") as maps:
        return [line.split()[0] for line in maps if line.split()[1].startswith("rwx")]

called_back = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)  # Python's own page, wherever libffi puts it
before = pages()
import numpy as np
import tilewright as tvm
from tilewright import te

A = te.placeholder((1 << 16,), name="A")
B = te.compute(A.shape, lambda i: te.exp(A[i]), name="B")
s = te.create_schedule(B.op)
s[B].parallel(B.op.axis[0])
f = tvm.build(s, [A, B], "llvm")
f(np.zeros(1 << 16, "float32"), np.zeros(1 << 16, "float32"))
assert len(pages()) == len(before) <= 1, pages()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell")
def test_compiled_code_is_not_writable() -> None:
    subprocess.run([sys.executable, "-c", WRITABLE_CODE], check=True)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("at", [-SEAL + 5, -3, -SEAL + 20], ids=["mark", "sum", "between"])
def test_damage_of_content_and_seal_together_is_refused(
    files: Path, tmp_path: Path, name: str, at: int
) -> None:
    data = bytearray((files / name).read_bytes())
    data[len(data) // 2] ^= 0x10
    for worn in (data[:at] + data[at + 1 :], data[:at] + b"more" + data[at:]):
        (tmp_path / name).write_bytes(worn)
        with pytest.raises(tvm.TVMError, match=rf"{name}: the file is (damaged|truncated)"):
            load(tmp_path / name)


@pytest.mark.parametrize("old, new", [(b'"functions"', b'"functions'), (b"__tw_metadata", b"__tw_metadatb")])
def test_what_is_wrong_with_linked_objects_is_said_of_the_archive(
    files: Path, tmp_path: Path, old: bytes, new: bytes
) -> None:
    """Without the seal, as if the damage had hit that too."""
    whole = (files / "f.tar").read_bytes()[:-SEAL]
    assert old in whole
    (tmp_path / "f.tar").write_bytes(whole.replace(old, new.ljust(len(old))))
    with pytest.raises(LoadError, match=r"f\.tar: its object code is damaged, or not made by tilewright"):
        load(tmp_path / "f.tar")


def test_what_is_wrong_with_a_member_is_said_of_the_archive(files: Path, tmp_path: Path) -> None:
    data = bytearray((files / "f.tar").read_bytes()[:-SEAL])
    at = data.index(b"\x7fELF")
    data[at + 40 : at + 48] = struct.pack("<Q", 1 << 60)  # where the section headers are
    (tmp_path / "f.tar").write_bytes(data)
    with pytest.raises(LoadError, match=r"f\.tar: its object code is damaged, .*: lib0\.o: .*truncated"):
        load(tmp_path / "f.tar")


@pytest.mark.parametrize(
    "part, data, reason",
    [
        ("model.relay", b"\xa6", "a part of it is not text"),
        ("model.relay", b"def @main(", "expected"),
        ("mod.params", b"\x08" + bytes(7) + b"nonsense", "this is not JSON"),
        ("mod.params", None, "it lacks mod.params"),
    ],
)
def test_what_is_wrong_with_a_part_is_said_of_the_model(
    tmp_path: Path, part: str, data: bytes | None, reason: str
) -> None:
    path = tmp_path / "model.tar"
    parts = {"model.relay": b"def @main(%x: Tensor[(2), float32]) { %x }", "mod.params": b"", part: data}
    archive.write(path, archive.SAVED_MODEL, {}, {n: d for n, d in parts.items() if d is not None})
    with pytest.raises(tvmc.TVMCException, match=f"model.tar: damaged: .*{reason}"):
        tvmc.load(str(path))


_PTX = b".version 8.0\n.target sm_80\n.visible .entry add(.param .u64 a)\n{\n ret;\n}\n\0"
_CUBIN = b"\x7fELF" + bytes(range(256)) * 4


@pytest.mark.parametrize("name, image", [("k.ptx", _PTX), ("k.cubin", _CUBIN)])
def test_device_code_carries_a_checksum(tmp_path: Path, name: str, image: bytes) -> None:
    path = tmp_path / name
    DeviceModule("cuda", "", ["add"], {"image": image}).save(path)
    data = path.read_bytes()
    loaded = tvm.runtime.load_module(str(path))
    assert loaded.options["image"] == image  # type: ignore[attr-defined]
    loaded.save(str(path))
    assert path.read_bytes() == data
    for at in (20, len(data) // 2, len(data) - 60, len(data) - 2):
        for worn in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at] + data[at + 1 :]):
            path.write_bytes(worn)
            with pytest.raises(LoadError, match=rf"{name}: the file is (damaged|truncated)"):
                tvm.runtime.load_module(str(path))


def test_edited_ptx_is_loaded_without_the_line_of_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    DeviceModule("cuda", "", ["add"], {"image": _PTX}).save(path)
    assert path.read_text().splitlines()[-1].startswith("// tilewright sum ")
    path.write_text("// mine\n" + path.read_text())
    with pytest.raises(LoadError, match="remove that line if you have edited the text"):
        tvm.runtime.load_module(str(path))
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert tvm.runtime.load_module(str(path)).options["image"].startswith(b"// mine")  # type: ignore[attr-defined]


def test_a_table_that_would_lie_behind_all_memory_is_refused(files: Path, tmp_path: Path) -> None:
    """Without the seal, which would tell before."""
    data = bytearray((files / "f.so").read_bytes()[:-SEAL])
    data[32:40] = struct.pack("<Q", 2**64 - 64)  # where the program headers are
    (tmp_path / "f.so").write_bytes(data)
    with pytest.raises(LoadError, match=r"f\.so: .*truncated"):
        load(tmp_path / "f.so")


def test_a_name_at_the_end_is_no_seal() -> None:
    """A file without a seal is taken as it is, whatever it says of who made it."""
    for end in (b'{"format":"tilewright"}', b"\0tilewright_launch\0", b"sums of tilewright\n"):
        data = bytes(300) + end
        assert check_seal(data, "here") == len(data)
    damaged = bytearray(sealed(bytes(300)))
    damaged[300] ^= 1  # of the mark
    with pytest.raises(LoadError, match="the file is damaged"):
        check_seal(bytes(damaged), "here")
