"""Linking object files to shared libraries with the system's compiler, or with zig's where there is none."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from ..files import written_whole
from . import elf
from .errors import LoadError, TVMError
from .json_reader import as_table
from .library import METADATA
from .seal import check_seal, seal

_END = bytes(1024)  # how a tar archive ends
_CANDIDATES = ("cc", "gcc", "clang", "g++", "clang++")


def find_cc() -> list[str] | None:
    """The command of a C compiler: `TILEWRIGHT_CC` or `CC`, the system's, or zig's; None without any."""
    for variable in ("TILEWRIGHT_CC", "CC"):
        words = shlex.split(os.environ.get(variable, ""))
        if words and shutil.which(words[0]):
            return words
    for name in _CANDIDATES:
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def find_cross_cc(triple: str) -> list[str]:
    """The command of a compiler that links for another machine: its own gcc, zig's, or clang."""
    arch, _, rest = triple.partition("-")
    parts = [part for part in rest.split("-") if part not in ("unknown", "pc", "none", "w64")]
    short = "-".join([arch, *parts])
    for name in dict.fromkeys((f"{triple}-gcc", f"{short}-gcc")):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        if "apple" in parts:
            short = f"{'aarch64' if arch == 'arm64' else arch}-macos"
        elif arch.startswith("armv"):
            short = "-".join(["arm", *parts])
        return [sys.executable, "-m", "ziglang", "cc", "-target", short]
    if shutil.which("clang"):
        return ["clang", f"--target={triple}"]
    raise TVMError(
        f"no compiler was found to link for {triple}; `pip install ziglang`, install {short}-gcc or clang, "
        "or pass fcompile=cc.cross_compiler(command)"
    )


def run_cc(
    arguments: Sequence[str],
    output: str,
    cc: str | Sequence[str] | None = None,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    finish: Callable[[str], None] | None = None,
) -> None:
    """Run a compiler so that `output` appears whole or not at all; `finish(path)` is the last to touch it."""
    command = shlex.split(cc) if isinstance(cc, str) else list(cc) if cc is not None else find_cc()
    if not command:
        raise TVMError(
            "no C compiler was found to link with; install gcc or clang, or `pip install ziglang`, "
            "or name one in TILEWRIGHT_CC"
        )
    place = os.path.join(cwd, output) if cwd else output
    folder = os.path.dirname(os.path.abspath(place))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{folder}: there is no such folder to write {os.path.basename(output)} to")
    # A process may use the old library: its file must survive, so the new file only replaces its name.
    with written_whole(os.path.abspath(place)) as made:
        full = [*command, *arguments, "-o", made]
        try:
            done = subprocess.run(
                full, capture_output=True, text=True, cwd=cwd, env={**os.environ, **env} if env else None
            )
        except OSError as error:
            raise TVMError(f"cannot run the compiler {command[0]!r}: {error}") from error
        if done.returncode != 0:
            told = (done.stderr + done.stdout).strip()
            raise TVMError(
                f"making {output} failed (exit code {done.returncode}):\n{shlex.join(full)}\n{told}"
            )
        if finish is not None and os.path.isfile(made):
            finish(made)


def link_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | Sequence[str] | None = None,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    triple: str | None = None,
) -> None:
    """Link object files (or compile C sources) to one shared library, for this machine or for `triple`."""
    files = [objects] if isinstance(objects, (str, os.PathLike)) else list(objects)
    flags = ["-shared", "-fPIC", *(options or ())]
    if cc is None and triple is not None:
        cc = find_cross_cc(triple)
    if "apple" in triple if triple else sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    named = [os.fspath(file) for file in files]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        described = merged_metadata([os.path.join(cwd or "", file) for file in named])
        if described is not None:
            named.append(os.path.join(folder, "metadata.c"))
            with open(named[-1], "w") as source:
                source.write(f"const char {METADATA}[] = {{{','.join(map(str, described))}}};\n")
        # libraries last: a linker takes from them only symbols that are undefined so far
        run_cc([*flags, *named, "-lm", "-lpthread"], os.fspath(output), cc, cwd, env, finish=seal)


def merged_metadata(objects: Sequence[str]) -> bytes | None:
    """The description of a library of several object files, with the functions of all; None if at most one has one."""
    found: dict[str, dict[str, Any]] = {}
    for file in objects:
        data = elf.object_contents(file, METADATA) if os.path.isfile(file) else None
        if data is not None:
            found[file] = as_table(data.rstrip(b"\0"), file)
    if len(found) < 2:
        return None
    homes: dict[str, str] = {}
    for file, table in found.items():
        special = sorted(table.keys() & {"model", "programs", "external"})
        if special:
            raise TVMError(
                f"{file} holds a whole model or kernels of a device ({special[0]}), which is not linked with other "
                "object files; export_library it by itself"
            )
        for f in table["functions"]:
            if f["name"] in homes:
                raise TVMError(
                    f"function {f['name']!r} is in {homes[f['name']]} and in {file}; build one of them with another "
                    "name=…"
                )
            homes[f["name"]] = file
    functions = [f for table in found.values() for f in table["functions"]]
    merged = {**next(iter(found.values())), "functions": functions}
    merged.pop("entry", None)
    return json.dumps(merged, separators=(",", ":")).encode() + b"\0"


def write_library(
    target: str,
    parts: Sequence[bytes | Callable[[str], str]],
    triple: str | None = None,
    *,
    fcompile: Callable[..., Any] | bool | None = None,
    addons: Sequence[str] | None = None,
    workspace_dir: str | None = None,
    **options: Any,
) -> None:
    """Write object code as a sealed library: a `.tar` of object files, or what `fcompile` or a linker makes of them.

    A part is the contents of an object file, or a function that writes one in a folder. The other arguments are those
    of `Module.export_library`.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-", dir=workspace_dir) as folder:
        objects: list[str] = []
        for i, part in enumerate(parts):
            if callable(part):
                objects.append(part(folder))
                continue
            objects.append(os.path.join(folder, f"lib{i}.o"))
            with open(objects[-1], "wb") as file:
                file.write(part)
        objects += addons or ()
        if target.endswith(".tar"):
            pack_objects(target, objects)
        elif callable(fcompile):  # False is the default, as None is
            fcompile(target, objects, **options)
        else:
            link_shared(target, objects, triple=triple, **options)
    if os.path.isfile(target):
        seal(target)


def pack_objects(archive: str | os.PathLike[str], objects: Sequence[str | os.PathLike[str]]) -> None:
    """Collect files in a sealed tar archive, reproducible to the byte."""
    with written_whole(archive) as part:
        with tarfile.open(part, "w") as tar:
            for file in objects:
                tar.add(file, os.path.basename(os.fspath(file)), filter=_anonymous)
            end = tar.offset
        seal_archive(part, end)


def seal_archive(archive: str | os.PathLike[str], end: int) -> None:
    """Seal a tar archive after its last member, without padding, which could be truncated together with the seal."""
    os.truncate(archive, end + len(_END))
    seal(archive)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def unpack_objects(archive: str, folder: str) -> list[str]:
    """Unpack the object files of a tar archive; a member outside of the folder is refused.

    The archive must not be compressed, so the output is never larger than the archive.
    """
    found = []
    try:
        check_archive(archive)
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                name = os.path.normpath(member.name)
                plain = (member.isfile() and not member.issparse()) or member.isdir()
                if name.startswith(("/", "..")) or not plain:
                    raise LoadError(
                        f"{archive}: the member {member.name!r} is not a plain file within the archive"
                    )
                if member.isfile() and name.endswith((".o", ".obj")):
                    tar.extract(member, folder, filter="data")
                    found.append(os.path.join(folder, name))
    except LoadError:
        raise
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise LoadError(f"{archive}: the tar archive is damaged: {error}") from error
    except OSError as error:
        raise LoadError(f"{archive}: cannot be unpacked: {error}") from error
    if not found:
        raise LoadError(f"{archive}: there are no object files in the archive")
    return found


_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def check_archive(archive: str) -> None:
    """Refuse an archive that is compressed, was damaged since it was sealed, or lacks its end."""
    size = os.path.getsize(archive)
    with open(archive, "rb") as file:
        head = file.read(6)
        kind = next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), "")
        if kind:
            raise LoadError(f"{archive}: the archive is compressed with {kind}; decompress it first")
        if not size:
            raise LoadError(f"{archive}: the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = check_seal(data, archive)
            if data[max(0, end - len(_END)) : end] != _END:
                raise LoadError(
                    f"{archive}: the tar archive is damaged: it is truncated, the mark of its end is missing"
                )
