"""The CPUs of a process: affinity, and quotas of control groups of both versions."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import config, cpus

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = "33 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"


def _system(root: Path, mounts: str, groups: str, limits: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("mounts", "groups", "limits", "wanted"),
    [
        pytest.param(V2, "0::/\n", {"cpu.max": "150000 100000\n"}, 1.5, id="container"),
        pytest.param(V2, "0::/\n", {"cpu.max": "max 100000\n"}, None, id="no limit"),
        pytest.param(
            V2,
            "0::/a/b\n",
            {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "400000 100000\n"},
            1.0,
            id="the group above limits it",
        ),
        pytest.param(
            V1.format(root="/"),
            "4:cpu,cpuacct:/a\n3:memory:/b\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "25000\n"},
            2.0,
            id="version 1",
        ),
        pytest.param(
            V1.format(root="/docker/abc"),
            "4:cpu,cpuacct:/docker/abc\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            3.0,
            id="version 1 in a container",
        ),
        pytest.param(
            V1.format(root="/"),
            "4:cpu,cpuacct:/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            None,
            id="version 1 without a limit",
        ),
        pytest.param("", "", {}, None, id="no control groups"),
        pytest.param(V2, "0::/\n", {"cpu.max": "nonsense\n"}, None, id="damaged"),
    ],
)
def test_quota(
    tmp_path: Path, mounts: str, groups: str, limits: dict[str, str], wanted: float | None
) -> None:
    assert cpus.quota(_system(tmp_path, mounts, groups, limits)) == wanted


@pytest.mark.parametrize(("limit", "wanted"), [(None, 8), (0.5, 1), (1.0, 1), (1.5, 2), (64.0, 8)])
def test_threads_are_no_more_than_the_quota(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, wanted: int
) -> None:
    monkeypatch.setattr(cpus, "affinity", lambda: list(range(8)))
    monkeypatch.setattr(cpus, "quota", lambda: limit)
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    assert cpus.usable_cpus() == wanted
    assert config.num_threads.value == wanted
    with config.num_threads.set(5):
        assert config.num_threads.value == 5


_POOL = """
import os, sys
from tilewright import cpus
import tilewright.runtime.library as library
library.quota = lambda: {quota}
import numpy as np
import tilewright as tvm
from tilewright import te
A = te.placeholder((1 << 14,), name="A")
B = te.compute(A.shape, lambda i: te.exp(A[i]), name="B")
s = te.create_schedule(B.op)
s[B].parallel(s[B].split(B.op.axis[0], nparts=64)[0])
f = tvm.build(s, [A, B], "llvm")
x = tvm.nd.array(np.ones(1 << 14, "float32"))
y = tvm.nd.empty((1 << 14,))
before = len(os.listdir("/proc/self/task"))
f(x, y)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir() or len(cpus.affinity()) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("quota", [None, 1.0])
@pytest.mark.slow
def test_the_pool_starts_no_more_threads_than_the_quota(quota: float | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TILEWRIGHT_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", _POOL.format(quota=quota)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (0 if quota else cpus.usable_cpus() - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
@pytest.mark.parametrize(
    ("newer", "older", "wanted"),
    [
        ("150000 100000\n", "", 2),
        ("max 100000\n", "", 256),
        ("", "300000 100000", 3),
        ("", "-1 100000", 256),
        ("", "", 256),
    ],
)
@pytest.mark.slow
def test_a_library_without_python_reads_the_quota(
    tmp_path: Path, newer: str, older: str, wanted: int
) -> None:
    from tilewright.codegen.llvm.engine import Machine, pool_text, process_triple
    from tilewright.runtime.jit import JitLibrary

    files = {"cpu.max": newer, "cpu.cfs_quota_us": older[:-7], "cpu.cfs_period_us": older[-6:]}
    text = pool_text(process_triple()).replace("define internal i64 @tw.quota", "define i64 @tw.quota")
    for name, contents in files.items():
        place = tmp_path / name
        if contents:
            place.write_text(contents)
        size = len(str(place)) + 1
        text, count = re.subn(
            rf'\[\d+ x i8\] c"/sys/fs/cgroup/[^"]*{name}\\00"', rf'[{size} x i8] c"{place}\\00"', text
        )
        assert count == 1
    machine = Machine(process_triple(), "", "", 2)
    module = machine.parse(text)
    machine.optimize(module)
    library = JitLibrary(machine.object_code(module), exports=("tw.quota",))
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("tw.quota"))() == wanted
