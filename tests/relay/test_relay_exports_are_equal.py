"""Two exports of one model are the same bytes: across processes, folders, hash seeds and what was in memory before."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = b"PASSWORD=hunter2;"

WRITE = """
import os, sys
import numpy as np

seed = sys.argv[1].encode()
held = [np.frombuffer(seed * (n // len(seed) + 1), np.uint8)[:n].copy() for n in range(64, 6000, 7) for _ in range(4)]
del held  # the memory is used again

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import tar
from tilewright.driver import tvmc

A = te.placeholder((37,), name="A")
B = te.compute((37,), lambda i: te.exp(A[i]) + 1, name="B")
one = tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="one")
for kind in ("o", "ll", "bc", "s", "h", "json"):
    one.save(f"one.{kind}")
one.export_library("one.so")
one.export_library("one.tar")
one.export_library("one_by_hand.tar", fcompile=tar.tar)
tvm.build(te.create_schedule(B.op), [A, B], "c", name="one").save("one.c")

def weight(*shape):
    return np.linspace(-1, 1, int(np.prod(shape)), dtype="float32").reshape(shape)

x = relay.var("x", shape=(1, 3, 9, 9))
y = relay.nn.conv2d(x, relay.const(weight(5, 3, 3, 3)), channels=5, kernel_size=(3, 3))
y = relay.nn.relu(relay.nn.bias_add(y, relay.const(weight(5))))
y = relay.nn.dense(relay.nn.batch_flatten(y), relay.const(weight(7, 245)))
net = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(y)))
lib = relay.build(net, "llvm")
lib.export_library("net.so")
lib.export_library("net.tar")
lib.export_library("bare.so", weights=False)
open("net.params", "wb").write(relay.save_param_dict(lib.get_params()))
open("net.json", "w").write(lib.get_graph_json())

n = relay.var("n", shape=(relay.Any(), 9))
open_net = relay.Function([n], relay.nn.relu(relay.nn.dense(n, relay.const(weight(5, 9))) + relay.const(weight(5))))
exe = relay.vm.compile(open_net, "llvm")
exe.export_library("vm.so")
open("vm.code", "wb").write(exe.save()[0])

model = tvmc.TVMCModel(net, {})
model.save("model.tar")
tvmc.compile(model, target="llvm", package_path="package.tar")
"""


def _written(folder: Path, seed: int, secret: bytes) -> dict[str, bytes]:
    inside = folder / ("some where" * seed)
    inside.mkdir(parents=True)
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "TMPDIR": str(inside.parent), "TILEWRIGHT_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", WRITE, secret.decode()],
        cwd=inside,
        env=env,
        capture_output=True,
        text=True,
        umask=0o077 if seed > 1 else 0o022,
    )
    assert done.returncode == 0, done.stderr
    return {file.name: file.read_bytes() for file in sorted(inside.iterdir()) if file.is_file()}


@pytest.mark.slow
def test_two_exports_are_equal(tmp_path: Path) -> None:
    one, two = _written(tmp_path, 1, SECRET), _written(tmp_path, 2, b"another thing")
    assert len(one) >= 18 and set(one) == set(two)
    sums = [{name: hashlib.sha256(data).hexdigest() for name, data in made.items()} for made in (one, two)]
    assert [name for name in one if sums[0][name] != sums[1][name]] == []
    assert [name for name, data in one.items() if SECRET[:8] in data or os.fsencode(tmp_path) in data] == []
