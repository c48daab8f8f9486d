"""Convolutions beside conv2d, and pooling beside pool2d: types, values against PyTorch, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.testing import run_infer_type

nn = relay.nn


def var(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


def shape_of(expr: Any) -> Any:
    return run_infer_type(expr).checked_type.shape


def _functional() -> Any:
    return pytest.importorskip("torch").nn.functional


# (shape of data, shape of weight, the call, what PyTorch says)
CONVOLUTIONS: dict[str, tuple[Any, Any, Callable[..., Any], Callable[..., Any]]] = {
    "conv1d": (
        (2, 4, 9),
        (6, 2, 3),
        lambda x, w: nn.conv1d(x, w, 2, 1, groups=2),
        lambda f, x, w: f.conv1d(x, w, stride=2, padding=1, groups=2),
    ),
    "conv1d_nwc": (
        (2, 9, 4),
        (3, 4, 6),
        lambda x, w: nn.conv1d(x, w, data_layout="NWC", kernel_layout="WIO", out_layout="NCW"),
        lambda f, x, w: f.conv1d(x.permute(0, 2, 1), w.permute(2, 1, 0)),
    ),
    "conv3d": (
        (1, 3, 4, 5, 6),
        (2, 3, 2, 3, 3),
        lambda x, w: nn.conv3d(x, w, (1, 2, 1), (0, 1, 1), (1, 1, 2)),
        lambda f, x, w: f.conv3d(x, w, stride=(1, 2, 1), padding=(0, 1, 1), dilation=(1, 1, 2)),
    ),
    "conv1d_transpose": (
        (1, 4, 5),
        (4, 3, 3),
        lambda x, w: nn.conv1d_transpose(x, w, 2, 1, output_padding=1),
        lambda f, x, w: f.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
    ),
    "conv2d_transpose": (
        (1, 4, 5, 6),
        (4, 3, 3, 2),
        lambda x, w: nn.conv2d_transpose(x, w, (2, 3), (1, 0), groups=2, channels=6, kernel_size=(3, 2)),
        lambda f, x, w: f.conv_transpose2d(x, w, stride=(2, 3), padding=(1, 0), groups=2),
    ),
    "conv3d_transpose": (
        (1, 2, 3, 3, 3),
        (2, 2, 2, 3, 3),
        lambda x, w: nn.conv3d_transpose(x, w, 2, 1),
        lambda f, x, w: f.conv_transpose3d(x, w, stride=2, padding=1),
    ),
    "winograd": (
        (1, 3, 9, 10),
        (4, 3, 3, 3),
        lambda x, w: nn.contrib_conv2d_winograd_without_weight_transform(
            x, nn.contrib_conv2d_winograd_weight_transform(w, 4), 4, padding=1, channels=4, kernel_size=3
        ),
        lambda f, x, w: f.conv2d(x, w, padding=1),
    ),
    "nchwc": (
        (1, 8, 6, 6),
        (8, 8, 3, 3),
        lambda x, w: relay.layout_transform(
            nn.contrib_conv2d_nchwc(
                relay.layout_transform(x, "NCHW", "NCHW4c"),
                relay.layout_transform(w, "OIHW", "OIHW4i8o"),
                data_layout="NCHW4c",
                kernel_layout="OIHW4i8o",
                out_layout="NCHW8c",
            ),
            "NCHW8c",
            "NCHW",
        ),
        lambda f, x, w: f.conv2d(x, w),
    ),
    "depthwise_nchwc": (
        (1, 8, 6, 6),
        (8, 1, 3, 3),
        lambda x, w: relay.layout_transform(
            nn.contrib_depthwise_conv2d_nchwc(
                relay.layout_transform(x, "NCHW", "NCHW4c"),
                relay.layout_transform(w, "OIHW", "OIHW1i4o"),
                strides=2,
                groups=8,
                data_layout="NCHW4c",
                kernel_layout="OIHW1i4o",
            ),
            "NCHW4c",
            "NCHW",
        ),
        lambda f, x, w: f.conv2d(x, w, stride=2, groups=8),
    ),
}


@pytest.mark.parametrize("name", list(CONVOLUTIONS))
def test_convolutions(name: str, run_graph: Any, rng: Any) -> None:
    torch = pytest.importorskip("torch")
    data, weight, build, want = CONVOLUTIONS[name]
    x, w = (rng.standard_normal(s).astype("float32") for s in (data, weight))
    got = run_graph(build(var("x", *data), var("w", *weight)), x=x, w=w)
    np.testing.assert_allclose(
        got, want(_functional(), torch.tensor(x), torch.tensor(w)).numpy(), rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_deformable_and_correlation(run_graph: Any, rng: Any) -> None:
    torch = pytest.importorskip("torch")
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 2, 6, 6), (3, 2, 3, 3)))
    offset = np.zeros((1, 18, 4, 4), "float32")  # nothing is moved: an ordinary convolution
    made = nn.deformable_conv2d(var("x", 1, 2, 6, 6), var("o", 1, 18, 4, 4), var("w", 3, 2, 3, 3))
    want = _functional().conv2d(torch.tensor(x), torch.tensor(w)).numpy()
    np.testing.assert_allclose(run_graph(made, x=x, o=offset, w=w), want, rtol=1e-4, atol=1e-5)

    inferred = nn.deformable_conv2d(
        var("x", 1, 2, 6, 6), relay.var("o"), relay.var("w"), channels=3, kernel_size=(3, 3)
    )
    assert [a.checked_type.shape for a in run_infer_type(inferred).args] == [
        (1, 2, 6, 6),
        offset.shape,
        w.shape,
    ]
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(inferred), inferred))
    nhwc = relay.transform.ConvertLayout({"nn.deformable_conv2d": ["NHWC", "default"]})(mod)
    assert 'data_layout="NHWC", kernel_layout="HWIO"' in str(nhwc)
    converted = relay.create_executor("graph", nhwc, target="llvm").evaluate()(x, offset, w)
    np.testing.assert_allclose(converted.numpy(), want, rtol=1e-4, atol=1e-5)
    last = nn.deformable_conv2d(
        var("x", 1, 2, 6, 6), var("o", 1, 18, 4, 4), var("w", 3, 2, 3, 3), out_layout="NHWC"
    )
    got = run_graph(last, x=x, o=offset, w=w)
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)

    y = rng.standard_normal((1, 2, 6, 6)).astype("float32")
    seen = nn.correlation(var("x", 1, 2, 6, 6), var("y", 1, 2, 6, 6), 1, 1, 1, 1, 0, True, "NCHW")
    got = run_graph(seen, x=x, y=y)
    assert got.shape == (1, 9, 4, 4)
    moved = y[:, :, 0:4, 2:6]  # one up, one to the right: number 2 of the nine
    np.testing.assert_allclose(got[:, 2], (x[:, :, 1:5, 1:5] * moved).mean(1), rtol=1e-4, atol=1e-5)


POOLS: dict[str, tuple[Any, Callable[..., Any], Callable[..., Any]]] = {
    "max_pool1d": (
        (1, 2, 9),
        lambda x: nn.max_pool1d(x, 3, 2, padding=1),
        lambda f, x: f.max_pool1d(x, 3, 2, 1),
    ),
    "avg_pool1d": (
        (1, 2, 9),
        lambda x: nn.avg_pool1d(x, 3, 2, padding=1, count_include_pad=True),
        lambda f, x: f.avg_pool1d(x, 3, 2, 1),
    ),
    "max_pool3d": ((1, 2, 4, 6, 5), lambda x: nn.max_pool3d(x, 2, 2), lambda f, x: f.max_pool3d(x, 2, 2)),
    "avg_pool3d": (
        (1, 2, 4, 6, 5),
        lambda x: nn.avg_pool3d(x, (2, 2, 1), 2, ceil_mode=True),
        lambda f, x: f.avg_pool3d(x, (2, 2, 1), 2, ceil_mode=True),
    ),
    "adaptive_max_pool2d": (
        (1, 2, 7, 5),
        lambda x: nn.adaptive_max_pool2d(x, (3, 2)),
        lambda f, x: f.adaptive_max_pool2d(x, (3, 2)),
    ),
    "adaptive_avg_pool2d": (
        (1, 2, 7, 5),
        lambda x: nn.adaptive_avg_pool2d(x, 3),
        lambda f, x: f.adaptive_avg_pool2d(x, 3),
    ),
    "adaptive_avg_pool1d": (
        (1, 2, 7),
        lambda x: nn.adaptive_avg_pool1d(x, 3),
        lambda f, x: f.adaptive_avg_pool1d(x, 3),
    ),
    "adaptive_max_pool1d": (
        (1, 2, 7),
        lambda x: nn.adaptive_max_pool1d(x, 3),
        lambda f, x: f.adaptive_max_pool1d(x, 3),
    ),
    "adaptive_avg_pool3d": (
        (1, 2, 4, 3, 5),
        lambda x: nn.adaptive_avg_pool3d(x, (2, 2, 3)),
        lambda f, x: f.adaptive_avg_pool3d(x, (2, 2, 3)),
    ),
    "adaptive_max_pool3d": (
        (1, 2, 4, 3, 5),
        lambda x: nn.adaptive_max_pool3d(x, (2, 2, 3)),
        lambda f, x: f.adaptive_max_pool3d(x, (2, 2, 3)),
    ),
    "global_avg_pool1d": ((1, 2, 7), lambda x: nn.global_avg_pool1d(x), lambda f, x: x.mean(2, keepdim=True)),
    "global_max_pool1d": ((1, 2, 7), lambda x: nn.global_max_pool1d(x), lambda f, x: x.amax(2, keepdim=True)),
    "global_avg_pool3d": (
        (1, 2, 2, 3, 4),
        lambda x: nn.global_avg_pool3d(x),
        lambda f, x: x.mean((2, 3, 4), keepdim=True),
    ),
    "global_max_pool3d": (
        (1, 2, 2, 3, 4),
        lambda x: nn.global_max_pool3d(x),
        lambda f, x: x.amax((2, 3, 4), keepdim=True),
    ),
}


def test_pools(run_graph: Any, rng: Any) -> None:
    torch = pytest.importorskip("torch")
    arrays = {name: rng.standard_normal(case[0]).astype("float32") for name, case in POOLS.items()}
    calls = [build(var(name, *shape)) for name, (shape, build, _) in POOLS.items()]
    for name, got in zip(POOLS, run_graph(relay.Tuple(calls), **arrays), strict=True):
        want = POOLS[name][2](_functional(), torch.tensor(arrays[name])).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


def test_symbolic_and_unknown_sizes() -> None:
    n = te.size_var("n")
    assert shape_of(nn.conv1d(var("x", n, 4, relay.Any()), var("w", 6, 4, 3))) == (n, 6, relay.Any())
    out = shape_of(nn.conv2d_transpose(var("x", 1, 4, n, 5), var("w", 4, 3, 3, 3), strides=2))
    assert str(out[2]) == "n * 2 + 1" and out[3] == 11
    assert shape_of(nn.conv3d(var("x", 1, 2, n, 4, 4), var("w", 3, 2, 1, 2, 2)))[2] is n
    assert shape_of(nn.max_pool1d(var("x", 1, 4, relay.Any()), 2))[2] == relay.Any()
    assert shape_of(nn.adaptive_avg_pool2d(var("x", 1, 4, n, relay.Any()), (2, 3))) == (1, 4, 2, 3)
    assert shape_of(nn.adaptive_avg_pool2d(var("x", 1, 4, n, 5)))[2] is n


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: nn.conv1d(var("x", 1, 4, 9), var("w", 6, 3, 3)),
        "weight: is Tensor[(6, 3, 3), float32] in OIW: 3 input",
    ),
    (
        lambda: nn.conv1d(var("x", 1, 4, 9), var("w", 6, 4, 3), kernel_size=5),
        "kernel_size: is (5,) and weight is Tensor[(6, 4, 3), float32] in OIW",
    ),
    (
        lambda: nn.conv3d(var("x", 1, 4, 9, 9), var("w", 6, 3, 3)),
        "data: has 4 dimensions and its layout NCDHW has 5",
    ),
    (
        lambda: nn.conv2d_transpose(var("x", 1, 4, 9, 9), var("w", 3, 4, 3, 3)),
        "weight: is Tensor[(3, 4, 3, 3), float32] in IOHW: 3 input channels, and data has 4",
    ),
    (
        lambda: nn.conv2d_transpose(var("x", 1, 4, 9, 9), var("w", 4, 4, 3, 3), output_padding=-1),
        "output_padding: has -1 and must not be negative",
    ),
    (
        lambda: nn.deformable_conv2d(var("x", 1, 2, 6, 6), var("o", 1, 9, 4, 4), var("w", 3, 2, 3, 3)),
        "offset: has 9 channels and must have 18",
    ),
    (
        lambda: nn.contrib_conv2d_winograd_without_weight_transform(
            var("x", 1, 2, 6, 6), var("w", 6, 6, 3, 2), 4, strides=2
        ),
        "strides, dilation and groups must be 1 for Winograd's convolution",
    ),
    (lambda: nn.max_pool1d(var("x", 1, 2, 3), 5), "a window of 5 does not fit into 3"),
    (lambda: nn.max_pool3d(var("x", 1, 2, 3, 3, 3), 2, strides=0), "strides: has 0"),
    (
        lambda: nn.adaptive_avg_pool2d(var("x", 1, 2, 3, 3), (1, 2, 3)),
        "output_size: is (1, 2, 3) and the layout has 2 spatial axes",
    ),
]


@pytest.mark.parametrize(("build", "reason"), REFUSALS)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(build())
    assert reason in str(caught.value)


def test_wrong_counts_of_numbers() -> None:
    with pytest.raises(ValueError, match="3 spatial dimensions need one number or 3"):
        nn.conv3d(var("x", 1, 2, 3, 3, 3), var("w", 1, 2, 1, 1, 1), strides=(1, 2))
    with pytest.raises(ValueError, match="padding is one, three or six numbers"):
        nn.max_pool3d(var("x", 1, 2, 3, 3, 3), 1, padding=(1, 2))


@pytest.mark.parametrize(
    ("data_layout", "kernel_layout"), [("NCHW", "OIHW"), ("NHWC", "HWOI"), ("NCDHW", "OIDHW")]
)
def test_a_depthwise_weight_may_give_the_channels_from_each_input(
    data_layout: str, kernel_layout: str
) -> None:
    """The weight is (inputs, 2, …) as well as (2 * inputs, 1, …)."""
    functional, rank = _functional(), len(data_layout) - 2
    import torch

    a, b = (np.random.default_rng(0).random((*s, *(4,) * rank), "float32") for s in ((1, 3), (3, 2)))
    last = data_layout[-1] == "C"
    given = np.moveaxis(a, 1, -1) if last else a, np.moveaxis(b, (0, 1), (-2, -1)) if last else b
    x, w = var("x", *given[0].shape), var("w", *given[1].shape)
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    call = getattr(nn, f"conv{rank}d")(x, w, groups=3, channels=6, kernel_size=(4,) * rank, **layouts)
    got = relay.create_executor("graph", tvm.IRModule.from_expr(relay.Function([x, w], call)), target="llvm")
    wanted = getattr(functional, f"conv{rank}d")(
        torch.tensor(a), torch.tensor(b.reshape(6, 1, *b.shape[2:])), groups=3
    )
    np.testing.assert_allclose(got.evaluate()(*given).numpy().reshape(-1), wanted.reshape(-1), rtol=1e-5)
