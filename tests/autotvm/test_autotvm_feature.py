"""What a model sees of loops."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te
from tilewright.autotvm import feature
from tilewright.testing.autotvm import get_sample_task


def product() -> tuple[Any, list[te.Tensor]]:
    A, B = te.placeholder((16, 8), name="A"), te.placeholder((8, 32), name="B")
    r = te.reduce_axis((0, 8), name="r")
    C = te.compute((16, 32), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    xo, xi = s[C].split(x, factor=4)
    s[C].reorder(y, xo, s[C].op.reduce_axis[0], xi)
    s[C].parallel(y)
    s[C].vectorize(xi)
    return s, [A, B, C]


def test_loops_are_seen_from_the_outside_in() -> None:
    rows = feature.get_itervar_feature(*product())
    assert [row[0][1].name for row in rows] == ["i", "j_outer", "r", "j_inner"]
    # length, depth, iterations outside, inside; serial, parallel, vectorized, …
    assert [row[1][1:8] for row in rows] == [
        [16, 0, 16, 4096, 0, 1, 0],
        [8, 1, 128, 256, 1, 0, 0],
        [8, 2, 1024, 32, 1, 0, 0],
        [4, 3, 4096, 4, 0, 0, 1],
    ]
    # additions, multiplications, divisions of a run of the loop
    assert [row[2][1:] for row in rows] == [[4096, 4096, 0], [256, 256, 0], [32, 32, 0], [4, 4, 0]]
    touched = [{part[0]: part[1:] for part in row[3:]} for row in rows]
    # the stride, bytes and elements that a run of the loop touches, and how often each
    assert touched[0]["A"][:4] == [8, 512, 128, 32] and touched[0]["B"][:4] == [0, 1024, 256, 16]
    assert touched[1]["A"][:4] == [0, 32, 8, 32] and touched[1]["C"][:4] == [4, 128, 32, 8]
    assert touched[3]["B"][:4] == [1, 16, 4, 1] and touched[3]["A"][:4] == [0, 4, 1, 4]


def test_numbers_in_a_row_have_names() -> None:
    rows = feature.get_itervar_feature(*product())
    flat = feature.get_itervar_feature_flatten(*product(), take_log=False)
    names = feature.get_flatten_name(rows)
    assert len(flat) == len(names) == len(set(names)) == 4 * (11 + 3 + 3 * 5)
    seen = dict(zip(names, flat, strict=True))
    assert seen["r.length"] == 8 and seen["i.parallel"] == 1 and seen["j_inner.B.stride"] == 1
    logs = dict(zip(names, feature.get_itervar_feature_flatten(*product()), strict=True))
    assert logs["i.A.bytes"] == pytest.approx(9.0028, abs=1e-3) and logs["i.parallel"] == 1


def test_curves_are_as_long_for_every_configuration() -> None:
    task, _ = get_sample_task(64)
    curves = [
        feature.get_buffer_curve_sample_flatten(*task.instantiate(task.config_space.get(i)), sample_n=20)
        for i in (0, 17, 48)
    ]
    assert {len(c) for c in curves} == {3 * 3 * 20}  # buffers, curves, samples
    assert curves[0] != curves[1] != curves[2]


def test_blocks_within_blocks_and_plain_functions() -> None:
    A = te.placeholder((4, 6), name="A")
    B = te.compute((4, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((4, 6), lambda i, j: B[i, 5 - j] / 3.0, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    rows = feature.get_itervar_feature(s, [A, C])
    assert [row[0][1].name for row in rows[:1]] == ["i"] and len(rows) >= 3
    assert feature.ana_lower(s, [A, C]).block.name_hint == "root"
    plain = feature.get_itervar_feature(te.create_prim_func([A, C]))
    assert len(plain) == 4 and plain[-1][2][1:] == [0, 0, 6]
