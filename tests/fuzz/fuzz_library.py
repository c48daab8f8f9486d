"""Libraries and packages with damaged bytes: refused, or harmless."""

from __future__ import annotations

import json
import os
import random
import signal
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright import relay, te
from tilewright.driver import tvmc
from tilewright.error import TVMError
from tilewright.runtime.seal import sealed

X = np.linspace(-1, 1, 8, dtype=np.float32)
KINDS = ("f.so", "f.tar", "f.o", "net.so", "net.tar", "package.tar", "model.tar", "vm.so")


@cache
def files() -> dict[str, bytes]:
    """One of each kind, as it is exported."""
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    built = tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="plus")
    x = relay.var("x", shape=(1, 8))
    body = relay.nn.dense(x, relay.const(np.arange(24, dtype="float32").reshape(3, 8)))
    net = tvm.IRModule.from_expr(relay.Function([x], body))
    n = relay.var("x", shape=(relay.Any(), 8))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        built.save(str(root / "f.o"))
        for name in ("f.so", "f.tar"):
            built.export_library(str(root / name))
        lib = relay.build(net, "llvm")
        for name in ("net.so", "net.tar"):
            lib.export_library(str(root / name))
        relay.vm.compile(relay.Function([n], relay.exp(n)), "llvm").export_library(str(root / "vm.so"))
        model = tvmc.TVMCModel(net, {})
        model.save(root / "model.tar")
        tvmc.compile(model, target="llvm", package_path=str(root / "package.tar"))
        return {name: (root / name).read_bytes() for name in KINDS}


def used(path: Path) -> list[float]:
    """Some numbers from what is in a file."""
    if path.name == "model.tar":
        return [float(len(str(tvmc.load(str(path)).mod)))]
    if path.name == "package.tar":
        run = tvmc.TVMCPackage(path).executor(tvm.cpu())
        run.set_input("x", X[None])
        run.run()
        return run.get_output(0).numpy().reshape(-1).tolist()  # type: ignore[no-any-return]
    module: Any = tvm.runtime.load_module(str(path))
    if path.name == "vm.so":
        return tvm.runtime.vm.VirtualMachine(module, tvm.cpu()).run(X[None]).numpy().reshape(-1).tolist()  # type: ignore[no-any-return]
    if path.name.startswith("net"):
        made = module["default"](tvm.cpu())
        made.set_input("x", X[None])
        made.run()
        return made.get_output(0).numpy().reshape(-1).tolist()  # type: ignore[no-any-return]
    out = np.zeros(8, np.float32)
    module["plus"](X, out)
    return out.tolist()


@cache
def good() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, data in files().items():
            path = Path(folder) / name
            path.write_bytes(data)
            found[name] = used(path)
        return found


def _in_a_child(path: Path, seconds: int = 40) -> tuple[str, Any]:
    """What comes of using a file, in a process of its own: whatever happens, it happens there."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(seconds)
        try:
            told: tuple[str, Any] = ("numbers", used(path))
        except TVMError as error:
            told = ("refused", path.name in str(error))
        except BaseException as error:
            told = ("raised", f"{type(error).__name__}: {error}")
        os.write(write, json.dumps(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "ended by", signal.Signals(os.WTERMSIG(status)).name
    kind, found = json.loads(text)
    return kind, found


@fuzzer("library", seconds=60, gib=8, short=6, share=2)
def library(rng: random.Random) -> str:
    """A damaged file is refused by an error that names it, or gives the numbers of the whole one."""
    name = rng.choice(KINDS)
    wanted = good()[name]
    data = damaged(rng, files()[name])
    if data == files()[name]:
        return "whole"
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        kind, found = _in_a_child(path)
    if kind == "refused":
        assert found, f"{name}: the error does not name the file"
        return "refused"
    assert kind == "numbers", f"{name}: {kind} {found}"
    assert found == wanted, f"{name}: other numbers, {found}"
    return "harmless"


@fuzzer("archive", seconds=20, gib=2, short=100)
def archive(rng: random.Random) -> str:
    """Archives that were damaged and sealed again, as by somebody who means it: refused before anything is linked."""
    from tilewright.runtime.link import unpack_objects

    whole = files()[rng.choice(("f.tar", "net.tar"))]
    body = damaged(rng, whole[: -len(sealed(b""))])
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "f.tar"
        path.write_bytes(rng.choice((sealed, bytes))(body))
        inside = Path(folder) / "inside"
        inside.mkdir()
        try:
            found = unpack_objects(str(path), str(inside))
        except TVMError as error:
            return refused(error)
        assert sorted(os.listdir(folder)) == ["f.tar", "inside"]
        assert all(Path(f).resolve().is_relative_to(inside.resolve()) for f in found)
        assert sum(os.path.getsize(f) for f in found) <= len(body)
        with tarfile.open(path, "r:") as tar:
            return f"{len(tar.getnames())} members"
