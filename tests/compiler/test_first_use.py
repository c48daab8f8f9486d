"""What a user meets first: threads that call before anything is linked, deep programs, odd names and CPUs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TargetError


def _add_one():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    return te.create_schedule(B.op), [A, B]


@pytest.mark.slow
def test_threads_that_make_the_first_call_at_once():
    program = textwrap.dedent(
        """
        import sys, threading
        import numpy as np
        import tilewright as tvm
        from tilewright import te

        sys.setswitchinterval(1e-5)
        A = te.placeholder((64,), name="A")
        B = te.compute((64,), lambda i: A[i] + 1, name="B")
        s = te.create_schedule(B.op)
        s[B].parallel(B.op.axis[0])
        f = tvm.build(s, [A, B], "llvm")
        start, wrong = threading.Barrier(4), []

        def work(k):
            a, b = np.full(64, k, "float32"), np.zeros(64, "float32")
            start.wait()
            for _ in range(50):
                f(a, b)
                if not (b == k + 1).all():
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("wrong", wrong)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "wrong []\n"), done.stderr


@pytest.mark.slow
def test_a_chain_of_four_hundred_stages():
    A = te.placeholder((4,), name="A")
    x = A
    for _ in range(400):
        x = x + 1
    f = tvm.build(te.create_schedule(x.op), [A, x], "llvm")
    out = np.zeros(4, "float32")
    f(np.zeros(4, "float32"), out)
    assert (out == 400).all()


def test_a_thousand_nested_additions():
    A = te.placeholder((4,), name="A")

    def sum_of_many(i):
        value = A[i]
        for _ in range(1000):
            value = value + A[i]
        return value

    B = te.compute((4,), sum_of_many, name="B")
    limit = sys.getrecursionlimit()
    f = tvm.build(te.create_schedule(B.op), [A, B], "llvm")
    out = np.zeros(4, "float32")
    f(np.ones(4, "float32"), out)
    assert (out == 1001).all()
    assert te.create_prim_func([A, B]) is not None
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    "target, unknown",
    [
        ("llvm -mcpu=nosuch", "CPU 'nosuch'"),
        ("llvm -mattr=+nosuch", "feature '\\+nosuch'"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=nosuch", "CPU 'nosuch'"),
    ],
)
def test_cpus_and_features_that_llvm_does_not_know(target, unknown, capfd):
    s, args = _add_one()
    with pytest.raises(TargetError, match=unknown):
        tvm.build(s, args, target)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "name, symbol",
    [("a b", "a_b"), ("my-func", "my_func"), ("1x", "tw_1x"), ("", "tw_"), ("plus.é", "plus__")],
)
def test_names_that_c_cannot_read_get_a_symbol_that_it_can(name, symbol):
    s, args = _add_one()
    f = tvm.build(s, args, "llvm", name=name)
    out = np.zeros(8, "float32")
    f[name](np.zeros(8, "float32"), out)
    assert (out == 1).all()
    assert f"int32_t {symbol}(" in f.get_source("h")


def test_timing_on_a_device_that_is_not_there():
    s, args = _add_one()
    f = tvm.build(s, args, "llvm", name="f")
    with pytest.raises(ValueError, match=r"cuda\(7\) is not available"):
        f.time_evaluator("f", tvm.cuda(7))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inlined", "scheduled automatically"])
def test_a_long_chain_becomes_one_stage(how):
    """Far beyond the number of blocks from which on chains are inlined pair by pair."""
    A = te.placeholder((8,), name="A")
    x = A
    for k in range(150):
        x = te.compute((8,), lambda i, x=x, k=k: x[i] * 0.5 + float(k), name=f"s{k}")
    s = te.create_schedule(x.op)
    for stage in s.stages[1:-1]:
        stage.compute_inline()
    if how == "inlined":
        f = tvm.build(s, [A, x], "llvm")
        assert len(s.to_prim_func([A, x]).body.block.alloc_buffers) == 0
    else:
        f = tvm.compile([A, x], "llvm")
    want = a = np.linspace(-1, 1, 8, dtype="float32")
    for k in range(150):
        want = want * 0.5 + k
    out = np.zeros(8, "float32")
    f(a, out)
    np.testing.assert_allclose(out, want, rtol=1e-5)
