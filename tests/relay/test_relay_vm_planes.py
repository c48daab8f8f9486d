"""Networks over images of dynamic size: for each size they agree with NumPy, whatever part of a tile is full."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.expr import SizeVar
from tilewright.relay.backend.vm_cases import solution
from tilewright.relay.backend.vm_planes import plane_of
from tilewright.relay.transform.infer_type import infer_type

# One pixel, less than a vector, just a vector, one more, several vectors, more than a tile.
SIZES = [(1, 1), (1, 7), (3, 16), (2, 17), (5, 40), (2, 100), (1, 150)]


def machine(build):
    """A virtual machine of a function of an image, its height and width dynamic."""
    x = relay.var("x", shape=(1, 6, relay.Any(), relay.Any()))
    mod = tvm.IRModule.from_expr(relay.Function([x], build(x)))
    return relay.vm.VirtualMachine(relay.vm.compile(mod, target="llvm"), tvm.cpu())


def image(height, width):
    rng = np.random.default_rng(height * 1000 + width)
    return rng.integers(-4, 5, (1, 6, height, width)).astype("float32")


def weights(*shape):
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype("float32")


def convolved(x, w, padding, stride, groups=1):
    """A convolution in NumPy."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    out, each, size = w.shape[0], w.shape[1], w.shape[2]
    high, wide = ((n - size) // stride + 1 for n in x.shape[2:])
    made = np.zeros((1, out, high, wide), "float32")
    for o in range(out):
        first = o // (out // groups) * each
        for i in range(each):
            for a in range(size):
                for b in range(size):
                    part = x[0, first + i, a : a + stride * high : stride, b : b + stride * wide : stride]
                    made[0, o] += w[o, i, a, b] * part
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "padding", "stride", "groups"), [(1, 0, 1, 1), (3, 1, 1, 6), (5, 2, 2, 6), (3, 1, 2, 1)]
)
def test_convolutions_of_any_size(size, padding, stride, groups):
    w, shift = weights(12, 6 // groups, size, size), weights(12, 1, 1)

    def build(x):
        made = relay.nn.conv2d(
            x,
            relay.const(w),
            (stride, stride),
            (padding, padding),
            groups=groups,
            channels=12,
            kernel_size=(size, size),
        )
        return relay.nn.relu(made + relay.const(shift))

    vm = machine(build)
    for height, width in SIZES:
        x = image(height, width)
        found = vm.invoke("main", tvm.nd.array(x)).numpy()
        np.testing.assert_array_equal(found, np.maximum(convolved(x, w, padding, stride, groups) + shift, 0))


def test_pools_of_any_size():
    pooled = machine(lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2), padding=(1, 1)))
    whole = machine(lambda x: relay.nn.global_max_pool2d(relay.nn.relu(x)))
    for height, width in SIZES:
        x = image(height, width)
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        high, far = (height + 2) // 2, (width + 2) // 2
        expected = wide[:, :, : 2 * high, : 2 * far].reshape(1, 6, high, 2, far, 2).max((3, 5))
        np.testing.assert_array_equal(pooled.invoke("main", tvm.nd.array(x)).numpy(), expected)
        found = whole.invoke("main", tvm.nd.array(x)).numpy()
        np.testing.assert_array_equal(found, np.maximum(x, 0).max((2, 3), keepdims=True))


def test_scales_of_channels_and_squeeze_and_excite():
    scale = weights(6, 1, 1)

    def build(x):
        x = x * relay.const(scale)
        return x * relay.sigmoid(relay.nn.global_avg_pool2d(x))

    vm = machine(build)
    for height, width in SIZES:
        x = image(height, width) * scale
        expected = x / (1 + np.exp(-x.mean((2, 3), keepdims=True)))
        found = vm.invoke("main", tvm.nd.array(image(height, width))).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_upsampled_maps_of_dynamic_size_are_concatenated_and_saved(tmp_path):
    x = relay.var("x", shape=(1, 4, relay.Any(), relay.Any()))
    w = relay.const(weights(4, 4, 1, 1))
    small = relay.nn.conv2d(relay.nn.max_pool2d(x, (2, 2), (2, 2)), w, channels=4, kernel_size=(1, 1))
    twice = relay.repeat(relay.repeat(small, 2, 2), 2, 3)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.concatenate([x, twice], 1)))
    exe = relay.vm.compile(mod, target="llvm")
    exe.export_library(str(tmp_path / "maps.so"))
    vm = relay.vm.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "maps.so")), tvm.cpu())
    for height, width in ((2, 2), (4, 34), (6, 20)):
        data = np.random.default_rng(0).integers(-4, 5, (1, 4, height, width)).astype("float32")
        half = data.reshape(1, 4, height // 2, 2, width // 2, 2).max((3, 5))
        half = np.einsum("oi,bihw->bohw", w.data.numpy()[:, :, 0, 0], half)
        expected = np.concatenate([data, half.repeat(2, 2).repeat(2, 3)], 1)
        np.testing.assert_array_equal(vm.invoke("main", tvm.nd.array(data)).numpy(), expected)


def test_equations_between_sizes():
    n, m = SizeVar("n", "int32"), SizeVar("m", "int32")

    def text(a, b):
        found = solution(a, b)
        return None if found is None else f"{found[0]} = {found[1]}"

    assert text(n, m * 2) == "n = m * 2"
    assert text(n * 4, m * 8) == "n = m * 2"
    assert text(n * 4, m * 8 + 4) == "n = m * 2 + 1"
    assert text(n * 4, m * 6) is None
    assert text(n * 2, 8) == "n = 4"
    assert text(n + 1, 1) is None  # no size is 0
    assert text(n * n, m * m) is None


@pytest.mark.parametrize("kept", [True, False])
def test_only_operators_on_single_pixels_see_a_row_of_pixels(kept):
    n, m = SizeVar("n", "int32"), SizeVar("m", "int32")
    x = relay.var("x", shape=(1, 6, n, m))
    size = 1 if kept else 3
    w = relay.const(weights(4, 6, size, size))
    fn = infer_type(
        relay.Function(
            [x],
            relay.nn.relu(
                relay.nn.conv2d(x, w, padding=(size // 2,) * 2, channels=4, kernel_size=(size, size))
            ),
        )
    )
    plane = plane_of(fn, [p.checked_type for p in fn.params])
    assert (plane is not None) is kept
    if plane is not None:
        assert str(plane.flat(fn.params[0].checked_type).shape[2:]) == "(1, n * m)"
        assert plane.whole(plane.flat(fn.params[0].checked_type)) == fn.params[0].checked_type
