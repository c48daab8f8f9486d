"""Kinds of targets: what each says of itself, and that compiling for one loads and walks nothing of another."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tvm
from tilewright import backends, te
from tilewright.backends import _cpu, _gpu
from tilewright.compiler.lower import phases
from tilewright.ir.errors import LoweringError, TargetError
from tilewright.target.kinds import _registered
from tilewright.tir.transform import _PASSES

# those of the package: other tests register kinds of their own
KINDS = [k for k in tvm.target.Target.list_kinds() if Path(backends.__file__).with_name(f"{k}.py").exists()]
# Passes for threads, and for what only GPUs have; those of a processor alone are the last three.
GPU_ONLY = {
    *(
        "LowerScans",
        "BindParallelLoops",
        "UnifyThreadBinding",
        "LowerCrossThreadReduction",
        "PlaceThreadMemory",
        "LowerBulkCopies",
    ),
    *("InjectPermutedLayout", "LowerFragments", "LowerWarpMemory", "SpecializeWarps", "InjectPTXAsyncCopy"),
    *("FetchEarly", "ThreadSync", "SplitHostDevice"),
}
CPU_ONLY = {"LoopPartition", "UnmaskScratch", "CheckFirst"}


def names_of(pipeline: backends.Pipeline, target: tvm.target.Target) -> set[str]:
    backend = backends.backend_of(target)
    return {p.info.name.removeprefix("tir.") for phase in pipeline for p in backend.passes(phase, target)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_one_file(kind: str) -> None:
    target = tvm.target.Target(kind)
    backend = backends.backend_of(target)
    assert backend.name == kind == target.kind.name
    assert backend.family in ("cpu", "gpu", "accelerator")
    assert (target.is_cpu, target.is_gpu) == (backend.family == "cpu", backend.family == "gpu")
    assert sys.modules[f"tilewright.backends.{kind}"].BACKEND is backend
    assert target.has("measurable") == backend.measurable
    assert not backend.executor or target.has(f"{backend.executor}_executor")
    assert not target.has("no such thing")


def test_processors_walk_no_pass_for_gpus() -> None:
    for kind in KINDS:
        target = tvm.target.Target(kind)
        pipeline = backends.backend_of(target).pipeline
        found = names_of(pipeline, target)
        if target.is_gpu:
            assert not found & CPU_ONLY and found >= GPU_ONLY
        else:
            assert not found & GPU_ONLY
            assert found >= CPU_ONLY if target.is_cpu else "CoProcSync" in found


def test_without_a_target_threads_make_it_a_kernel() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    plain, bound = te.create_schedule(B.op), te.create_schedule(B.op)
    bound[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    seen = [
        {p.info.name for phase in phases(mod=tvm.IRModule({"main": s.to_prim_func([A, B])})) for p in phase}
        for s in (plain, bound)
    ]
    assert "tir.LoopPartition" in seen[0] and "tir.UnifyThreadBinding" not in seen[0]
    assert "tir.LoopPartition" not in seen[1] and "tir.UnifyThreadBinding" in seen[1]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("llvm", "bound to blockIdx.x, which a CPU target does not have"),
        ("c", "c has no threads, but a loop is bound"),
    ],
)
def test_processors_have_no_threads(kind: str, told: str) -> None:
    A = te.placeholder((16, 16), name="A")
    k = te.reduce_axis((0, 16), "k")
    B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].bind(B.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(LoweringError, match=told):
        tvm.build(s, [A, B], target=kind)


def test_options_choose_passes() -> None:
    target = tvm.target.Target("llvm")
    without = {
        "tir.disable_storage_rewrite": "StorageRewrite",
        "tir.disable_cse_tir": "CommonSubexprElimTIR",
    }
    for option, name in without.items():
        assert name in names_of(_cpu.LOWERING, target)
        with tvm.transform.PassContext(config={option: True}):
            assert name not in names_of(_cpu.LOWERING, target)
            assert name not in names_of(_gpu.PIPELINE, tvm.target.Target("cuda"))
    assert "SkipAssert" not in names_of(_cpu.LOWERING, target)
    with tvm.transform.PassContext(config={"tir.disable_assert": True}):
        assert "SkipAssert" in names_of(_cpu.LOWERING, target)


ASKS = re.compile(r"kind\.name (==|!=|in|not in)\b|kinds?\b.*\bin \(\"(cuda|opencl|llvm)\"")


def test_nobody_asks_for_a_kind_by_name() -> None:
    """What a target can do is asked of it: by a capability, its family, an option or a figure of the machine."""
    root = Path(tvm.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in ("backends", "target")
        and any(
            ASKS.search(line) and "spec." not in line and "s.kind" not in line
            for line in path.open(encoding="utf-8")
        )
    }
    assert not found


PROGRAM = """
import json, sys
import numpy as np
import tilewright as tvm
from tilewright import relay, te
A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
k = te.reduce_axis((0, 64), name="k")
C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
s = te.create_schedule(C.op)
s[C].parallel(C.op.axis[0])
tvm.build(s, [A, B, C], target="llvm")
tvm.build(tvm.auto_schedule(te.create_prim_func([A, B, C]), "llvm").mod, target="llvm")
x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
y = relay.nn.relu(relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32")), padding=(1, 1)))
relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.nn.batch_flatten(y)))), target="llvm")
print(json.dumps(sorted(n for n in sys.modules if n.startswith("tilewright."))))
"""


@pytest.mark.slow
def test_compiling_for_a_processor_loads_nothing_for_gpus() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=300
    )
    loaded = {name.removeprefix("tilewright.") for name in json.loads(done.stdout.splitlines()[-1])}
    other = {f"backends.{kind}" for kind in (*KINDS, "_gpu") if kind != "llvm"}
    passes = {f"tir.transform.{file}" for file in _files_of(GPU_ONLY)}
    assert len(passes) == len(GPU_ONLY)
    wrong = loaded & (other | passes)
    gpu = re.compile(
        r"tune\.((rules|cost)\.)?gpu|codegen\.source|runtime\.(cuda|opencl)|tir\.tensor_intrin\.cuda|topi\.cuda|relay\.backend\.device_kernel"
    )
    wrong |= {name for name in loaded if gpu.match(name)}
    assert not wrong


def _files_of(names: set[str]) -> Iterator[str]:
    """The files of passes, from the table of names."""
    for name in names:
        yield _PASSES[name][0] if name in _PASSES else "split_host_device"


def test_a_backend_of_ones_own() -> None:
    """A kind that is described outside of the package: the passes of a processor, and text for code."""
    mine = backends.register(
        backends.Backend(
            name="mine",
            device_type=12,
            family="accelerator",
            capabilities=frozenset({"big_adder"}),
            pipeline=_cpu.LOWERING,
            generate=lambda mod, same, target: mod.script(),
        )
    )
    try:
        target = tvm.target.Target("mine -model=first")
        assert target.kind is mine and target.has("big_adder") and "mine" in tvm.target.Target.list_kinds()
        A = te.placeholder((4,), name="A")
        B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
        assert "for i in range(4)" in tvm.build(te.create_schedule(B.op), [A, B], target)
    finally:
        del _registered["mine"]
    with pytest.raises(TargetError, match="unknown target kind 'mine'"):
        tvm.target.Target("mine")
