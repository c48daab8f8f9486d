"""`tilewright.testing`: the helpers that classic programs call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
import tilewright.testing


def test_allclose_compares_values() -> None:
    tvm.testing.assert_allclose(np.array([1.0, 2.0]), [1.0, 2.0])
    tvm.testing.assert_allclose(tvm.nd.array(np.ones(3, "float32")), np.ones(3), rtol=1e-5)
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose(np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    tvm.testing.assert_allclose(np.array([1.0, 2.0]), np.array([1.0, 2.1]), rtol=0.1)


def test_numerical_gradients() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.sum(x * x * y))

    x, y = np.array([1.0, 2.0], "float32"), np.array([3.0, -1.0], "float32")
    tvm.testing.check_numerical_grads(f, [x, y], [2 * x * y, x * x], function_value=f(x, y))
    tvm.testing.check_numerical_grads(f, {"x": x, "y": y}, {"y": x * x})
    with pytest.raises(AssertionError, match=r"the gradient of input 1 is 2\.24 away from differences"):
        tvm.testing.check_numerical_grads(f, [x, y], [2 * x * y, x * x - np.array([1.0, 2.0])])
    with pytest.raises(AssertionError, match="another shape"):
        tvm.testing.check_numerical_grads(f, [x, y], [np.ones((2, 1))])
    with pytest.raises(ValueError, match="gradients of \\['z'\\]"):
        tvm.testing.check_numerical_grads(f, {"x": x, "y": y}, {"z": x})


def test_allclose_compares_shapes() -> None:
    with pytest.raises(AssertionError, match="the shapes differ"):
        tvm.testing.assert_allclose(np.ones((2, 3)), np.ones(3))
    with pytest.raises(AssertionError, match="the shapes differ"):
        tvm.testing.assert_allclose(np.ones(3), 1.0)


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_TEST_TARGETS", raising=False)
    gpu = [("cuda", tvm.cuda(0))] if tvm.cuda(0).exist else []
    assert tvm.testing.enabled_targets() == [("llvm", tvm.cpu(0)), *gpu]
    assert tvm.testing.device_enabled("llvm")
    assert tvm.testing.device_enabled("llvm -mcpu=native")
    assert tvm.testing.device_enabled(tvm.target.Target("llvm"))
    assert tvm.testing.device_enabled("cuda") == tvm.cuda(0).exist
    assert tvm.testing.device_enabled("opencl") == tvm.opencl(0).exist
    assert not tvm.testing.device_enabled("rocm")
    monkeypatch.setenv("TVM_TEST_TARGETS", "rocm;llvm -num-cores=1")
    assert not tvm.testing.device_enabled("opencl")
    assert tvm.testing.enabled_targets() == [("llvm -num-cores=1", tvm.cpu(0))]
    with pytest.raises(TypeError, match="a target is a string or a Target, not int"):
        tvm.testing.device_enabled(3)


TESTS = """
import numpy as np
import pytest
import tilewright as tvm
import tilewright.testing
from tilewright import te

size = tvm.testing.parameter(1, 7)
dtype, one = tvm.testing.parameters(("int32", 1), ("float32", 1.0))

@tvm.testing.fixture
def values(size):
    return np.arange(size)

@tvm.testing.fixture(cache_return_value=True)
def heavy(size, made=[]):
    assert size not in made, "it is made once for each size"
    made.append(size)
    return [size]

def test_kept(heavy, size, dtype):
    assert heavy == [size]
    heavy.append("what a test does to it is its own affair")

def test_add(target, dev, values, size, dtype, one):
    A = te.placeholder((size,), dtype, name="A")
    B = te.compute((size,), lambda i: A[i] + te.const(one, dtype), name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B], target)
    out = tvm.nd.empty((size,), dtype, dev)
    f(tvm.nd.array(values.astype(dtype), dev), out)
    tvm.testing.assert_allclose(out, values + 1)

@tvm.testing.requires_llvm
def test_runs(): pass

@tvm.testing.requires_metal
def test_skipped_bare(): raise AssertionError

@tvm.testing.requires_cuda_compute_version(99)
def test_skipped_called(): raise AssertionError

@tvm.testing.requires_package("no_such_package_anywhere")
def test_skipped_package(): raise AssertionError

@tvm.testing.skip_if_32bit
@tvm.testing.parametrize_targets("llvm", "metal")
def test_given(target, dev):
    assert target == "llvm" and dev == tvm.cpu(0)

@tvm.testing.known_failing_targets("llvm")
def test_known(target): raise AssertionError

@tvm.testing.exclude_targets("llvm")
def test_excluded(target): raise AssertionError

if __name__ == "__main__":
    tvm.testing.main()
"""


@pytest.mark.slow
def test_a_file_of_tests_runs_itself(tmp_path: Path) -> None:
    file = tmp_path / "test_self.py"
    file.write_text(TESTS)
    done = subprocess.run(
        [sys.executable, str(file), "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TVM_TEST_TARGETS": "llvm"},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # twice 2 sizes × 2 pairs of dtype and one, requires_llvm, one of the two given targets
    assert "10 passed, 4 skipped, 1 xfailed" in done.stdout, done.stdout


def test_parameters_must_be_of_one_length() -> None:
    with pytest.raises(ValueError, match="tuples of the same length"):
        tvm.testing.parameters((1, 2), (3,))


def test_calls_that_give_their_arguments_back() -> None:
    import numpy as np

    from tilewright import testing

    assert testing.echo(np.int64((1 << 63) - 1)) == (1 << 63) - 1 and testing.nop(1, "a") is None
    assert testing.device_test(tilewright.opencl(3), 4, 3) == tilewright.opencl(3)
    with pytest.raises(ValueError, match="is not device 2 of type 4"):
        testing.device_test(tilewright.opencl(3), 4, 2)
