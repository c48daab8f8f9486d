"""The computes of the operators take sizes that are symbolic, and give what their relations say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright import relay, te
from tilewright.relay.testing import te_outputs

nn, q, im, vi = relay.nn, relay.qnn.op, relay.image, relay.vision
n, m = te.size_var("n"), te.size_var("m")
i32: dict[str, str] = {"dtype": "int32"}


def v(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


CALLS: list[Callable[[], Any]] = [
    lambda: nn.conv1d(v("x", n, 4, m), v("w", 6, 4, 3), 2, 1),
    lambda: nn.conv3d(v("x", n, 4, m, 5, 5), v("w", 6, 4, 3, 3, 3)),
    lambda: nn.conv2d_transpose(v("x", n, 4, m, m), v("w", 4, 6, 3, 3), 2),
    lambda: nn.conv1d_transpose(v("x", n, 4, m), v("w", 4, 6, 3), 2),
    lambda: nn.deformable_conv2d(v("x", n, 2, 6, 6), v("o", n, 18, 4, 4), v("w", 3, 2, 3, 3)),
    lambda: nn.contrib_conv2d_winograd_without_weight_transform(
        v("x", n, 3, 8, 8), v("w", 6, 6, 4, 3), 4, padding=1
    ),
    lambda: nn.contrib_conv2d_nchwc(
        v("x", n, 2, m, m, 4),
        v("w", 1, 2, 3, 3, 4, 8),
        data_layout="NCHW4c",
        kernel_layout="OIHW4i8o",
        out_layout="NCHW8c",
    ),
    lambda: nn.max_pool1d(v("x", n, 4, m), 2, 2),
    lambda: nn.max_pool1d(v("x", n, 4, m), 2, 2, ceil_mode=True),
    lambda: nn.avg_pool3d(v("x", n, 4, m, m, m), 2, 2, padding=1),
    lambda: nn.adaptive_avg_pool2d(v("x", n, 4, m, m), 3),
    lambda: nn.global_max_pool3d(v("x", n, 4, m, m, m)),
    lambda: nn.instance_norm(v("x", n, 4, m), v("g", 4), v("b", 4)),
    lambda: nn.group_norm(v("x", n, 4, m), v("g", 4), v("b", 4), 2),
    lambda: nn.rms_norm(v("x", n, m), v("w", m)),
    lambda: nn.l2_normalize(v("x", n, m), 1e-5, [1]),
    lambda: nn.lrn(v("x", n, 4, m)),
    lambda: nn.nll_loss(v("x", n, 4), v("t", n, **i32), v("w", 4)),
    lambda: nn.depth_to_space(v("x", n, 4, m, m), 2),
    lambda: nn.space_to_depth(v("x", n, 4, m, m), 2),
    lambda: nn.batch_to_space_nd(v("x", n, m, 4), [2], [[1, 1]]),
    lambda: nn.mirror_pad(v("x", n, m), ((0, 0), (1, 1))),
    lambda: nn.dilate(v("x", n, m), (1, 2)),
    lambda: nn.upsampling(v("x", n, 4, m, m), 2, 2),
    lambda: nn.upsampling3d(v("x", n, 4, m, m, m), 2, 2, 2),
    lambda: relay.scatter_elements(v("x", n, 4), v("i", m, 4, **i32), v("u", m, 4)),
    lambda: relay.scatter_nd(v("x", n, 4), v("i", 1, m, **i32), v("u", m, 4)),
    lambda: relay.segment_sum(v("x", n, 4), v("i", n, **i32), 3),
    lambda: relay.adv_index([v("x", n, 4), v("i", m, **i32)]),
    lambda: relay.sequence_mask(v("x", m, n), v("i", n, **i32)),
    lambda: relay.reverse_sequence(v("x", n, m), v("i", n, **i32)),
    lambda: relay.sliding_window(v("x", n, m), 1, (3,), (2,)),
    lambda: relay.trilu(v("x", n, m)),
    lambda: relay.matrix_set_diag(v("x", n, m, m), v("d", n, m)),
    lambda: relay.meshgrid([v("a", n), v("b", m)]).tuple_value,
    lambda: relay.reverse_reshape(v("x", n, m, 3), (-1, 0)),
    lambda: relay.sort(v("x", n, m)),
    lambda: relay.argsort(v("x", n, m), 0),
    lambda: relay.topk(v("x", n, m), 3).tuple_value,
    lambda: relay.topk(v("x", n, m), 0).tuple_value,
    lambda: relay.searchsorted(v("s", m), v("x", n)),
    lambda: relay.unique(v("x", n)).tuple_value,
    lambda: relay.einsum([v("x", n, 3), v("y", 3, m)], "ij,jk->ik"),
    lambda: im.resize2d(v("x", n, 3, m, m), (4, 4)),
    lambda: im.crop_and_resize(v("x", 2, 3, m, m), v("b", n, 4), v("i", n, **i32), 4, "NCHW"),
    lambda: im.grid_sample(v("x", n, 3, m, m), v("g", n, 2, 4, 4)),
    lambda: im.affine_grid(v("x", n, 2, 3), (3, 3)),
    lambda: vi.get_valid_counts(v("x", n, m, 6), 0.5).tuple_value,
    lambda: vi.non_max_suppression(v("x", n, m, 6), v("c", n, **i32), v("i", n, m, **i32)).tuple_value,
    lambda: vi.roi_align(v("x", 1, 3, m, m), v("r", n, 5), 2, 1.0),
    lambda: vi.roi_pool(v("x", 1, 3, m, m), v("r", n, 5), 2, 1.0),
    lambda: vi.multibox_prior(v("x", 1, 3, n, m)),
    lambda: vi.multibox_transform_loc(v("x", n, 3, m), v("l", n, m * 4), v("a", 1, m, 4)).tuple_value,
    lambda: q.quantize(v("x", n, m), 0.5, 0),
    lambda: q.conv2d(
        v("x", n, 3, m, m, dtype="int8"), v("w", 4, 3, 3, 3, dtype="int8"), 0, 0, 0.5, 0.5, (3, 3), 4
    ),
    lambda: q.dense(v("x", n, 4, dtype="int8"), v("w", 5, 4, dtype="int8"), 0, 0, 0.5, 0.5),
    lambda: q.add(v("x", n, 4, dtype="int8"), v("w", n, 4, dtype="int8"), *[0.5, 0] * 3),
    lambda: q.concatenate(
        [v("x", n, 4, dtype="int8"), v("y", m, 4, dtype="int8")], [0.5, 0.5], [0, 0], 0.5, 0, 0
    ),
    lambda: nn.sparse_dense(v("x", n, 4), (v("d", m), v("i", m, **i32), v("p", 6, **i32))),
    lambda: nn.fifo_buffer(v("x", 1, n), v("b", 3, n), 0),
    lambda: nn.cross_entropy(v("x", n, 4), v("t", n, 4)),
    lambda: nn.correlation(v("x", n, 2, m, 8), v("y", n, 2, m, 8), 1, 1, 1, 1, 0, True, "NCHW"),
    lambda: nn.contrib_dense_pack(v("x", n, 4), v("w", 2, 4, 8), "NC8n"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_symbolic_sizes_compute(number: int) -> None:
    assert te_outputs(CALLS[number]())
