"""Questions about schedules: blocks, correspondences with intrinsics, and layouts that loops suggest."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te, tir
from tilewright.tir.schedule.analysis import (
    get_auto_tensorize_mapping_info,
    get_tensorize_loop_mapping,
    has_block,
    is_output_block,
    suggest_index_map,
)
from tilewright.tir.tensor_intrin import VNNI_DOT_16x4_INTRIN
from tilewright.tir.tensor_intrin.x86 import dot_product_16x4_u8i8i32_desc


def product(n: int, m: int, k: int, relu: bool = False) -> tir.Schedule:
    A, B = te.placeholder((n, k), "uint8", name="A"), te.placeholder((m, k), "int8", name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (n, m), lambda i, j: te.sum(A[i, r].astype("int32") * B[j, r].astype("int32"), axis=r), name="C"
    )
    D = te.compute((n, m), lambda i, j: te.max(C[i, j], 0), name="D")
    return tir.Schedule(te.create_prim_func([A, B, D if relu else C]))


def test_blocks() -> None:
    sch = product(8, 16, 8, relu=True)
    assert has_block(sch, "C") and not has_block(sch, "E")
    assert is_output_block(sch, sch.get_block("D")) and not is_output_block(sch, "C")


def names(sch: tir.Schedule, **options: Any) -> dict[str, str] | None:
    found = get_tensorize_loop_mapping(sch, "C", dot_product_16x4_u8i8i32_desc, **options)
    if found is None:
        return None
    return {sch.get(ref).loop_var.name: loop.loop_var.name for ref, loop in found.loop_map.items()}


def test_loops_of_an_intrinsic_are_found_by_what_they_index() -> None:
    assert tir.TensorIntrin.get(VNNI_DOT_16x4_INTRIN).desc is dot_product_16x4_u8i8i32_desc
    sch = product(8, 32, 64)
    assert names(sch) == {"k": "k", "j": "i"}
    i, j, k = sch.get_loops("C")
    sch.reorder(k, j, i)
    assert names(sch) == {"k": "k", "j": "i"}


def test_sizes_that_do_not_fit_need_padding() -> None:
    sch = product(8, 30, 64)
    assert names(sch) is None
    assert names(sch, allow_padding=True) == {"k": "k", "j": "i"}
    found = get_tensorize_loop_mapping(sch, "C", dot_product_16x4_u8i8i32_desc, True)
    assert found is not None and found.block_iter_paddings == [1, 16, 1]


def test_another_computation_has_no_mapping() -> None:
    A = te.placeholder((32, 64), "int32", name="A")
    r = te.reduce_axis((0, 64), name="k")
    C = te.compute((32,), lambda i: te.sum(A[i, r], axis=r), name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    assert names(sch) is None
    assert get_auto_tensorize_mapping_info(sch, "C", dot_product_16x4_u8i8i32_desc) is None


def test_iterators_that_index_the_same_are_fused() -> None:
    A, B = te.placeholder((4, 3, 64), "uint8", name="A"), te.placeholder((8, 4, 64), "int8", name="B")
    r = te.reduce_axis((0, 64), name="k")
    C = te.compute(
        (4, 3, 8, 4),
        lambda a, b, c, d: te.sum(A[a, b, r].astype("int32") * B[c, d, r].astype("int32"), axis=r),
        name="C",
    )
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    found = get_auto_tensorize_mapping_info(sch, "C", dot_product_16x4_u8i8i32_desc)
    assert found is not None
    expected = tir.IndexMap.from_func(lambda a, b, c, d, k: (a, b, c * 4 + d, k))
    assert expected.is_equivalent_to(found.mappings[0])
    assert {a.name: b.name for a, b in found.lhs_buffer_map.items()} == {"A": "A", "B": "B", "C": "C"}


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_a_layout_in_the_order_of_the_loops(order: str) -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    extents = {i: 8, j: 4}
    loops = [
        tir.For(v, 0, extents[v], tir.ForKind.SERIAL, tir.Evaluate(0))
        for v in ((i, j) if order == "ij" else (j, i))
    ]
    found = suggest_index_map(tir.decl_buffer((8, 4)), [i, j], loops, True)
    if order == "ij":
        assert found is None  # it has that order
    else:
        assert found is not None
        assert found.is_equivalent_to(tir.IndexMap.from_func(lambda x, y: (y, x)))
