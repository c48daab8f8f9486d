"""Buffers: shapes, indexing, regions, pointers."""

from __future__ import annotations

import pytest

from tilewright.ir import structural_equal
from tilewright.ir.buffer import BufferRegion, decl_buffer
from tilewright.ir.expr import BufferLoad, IntImm, Ramp, Range, SizeVar, Var, const
from tilewright.ir.stmt import BufferStore
from tilewright.ir.types import PointerType, PrimType

i, j, n = Var("i"), Var("j"), Var("n")
A = decl_buffer((8, 16), "float32", "A")


# -- declaration --------------------------------------------------------------------------------
def test_defaults() -> None:
    assert A.dtype == "float32" and A.name == "A" and A.ndim == 2 and A.const_shape() == (8, 16)
    assert A.strides == () and A.elem_offset.value == 0 and A.data_alignment == 64 and A.offset_factor == 1
    assert A.scope() == A.scope_name == "global" and A.data.name == "A"
    assert A.data.type_annotation == PointerType(PrimType("float32"), "global")
    assert decl_buffer(4).const_shape() == (4,) and decl_buffer(4).dtype == "float32"
    assert decl_buffer((), "int8").const_shape() == () and decl_buffer((n,)).const_shape() is None
    assert repr(A) == "Buffer(A, (8, 16), float32)"


def test_what_is_said() -> None:
    b = decl_buffer(
        [n, 4], "int8", "B", strides=[8, 1], elem_offset=i, scope="shared", data_alignment=16, offset_factor=2
    )
    assert b.strides[0].value == 8 and b.elem_offset is i and b.scope() == "shared"
    assert (b.data_alignment, b.offset_factor) == (16, 2)
    offset = decl_buffer((4,), offset_factor=4).elem_offset
    assert isinstance(offset, Var), "a factor without an offset asks for an unknown one"
    wide = decl_buffer((Var("m", "int64"),))
    assert wide.elem_offset.dtype == "int64"
    pointer = Var("p", PointerType(PrimType("int8"), "local"))
    assert decl_buffer((4,), "int8", data=pointer).scope() == "local"


def test_contradictions() -> None:
    pointer = Var("p", PointerType(PrimType("int8"), "local"))
    with pytest.raises(ValueError, match="buffer B: scope 'shared', but its data pointer is in 'local'"):
        decl_buffer((4,), "int8", "B", data=pointer, scope="shared")
    with pytest.raises(ValueError, match="the types are"):
        decl_buffer((4,), buffer_type="circular")
    assert decl_buffer((4,), buffer_type="default").ndim == 1


# -- indexing -----------------------------------------------------------------------------------
def test_loads() -> None:
    load = A[i, 3]
    assert load.__class__ is BufferLoad and load.buffer is A and load.indices[0] is i
    assert decl_buffer((4,))[i].indices[0] is i
    with pytest.raises(ValueError, match="buffer A has 2 dimensions and was indexed with 3"):
        A[i, j, 0]


def test_slices_are_regions() -> None:
    region = A[i, 2:8]
    assert region.__class__ is BufferRegion
    assert [(str(r.min), str(r.extent)) for r in region.region] == [("i", "1"), ("2", "6")]
    whole = A[:, :]
    assert structural_equal(whole, BufferRegion.full(A))
    mixed = A[Range(1, 3), 4:]
    assert [(r.min.value, r.extent.value) for r in mixed.region] == [(1, 2), (4, 12)]


def test_slices_with_steps_are_vectors() -> None:
    load = A[i, 0:8:2]
    assert load.dtype == "float32x4" and isinstance(load.indices[1], Ramp)
    assert A[i, ::4].dtype == "float32x4" and A[i, 0:7:2].dtype == "float32x4"
    symbolic = A[i, j * 4 : j * 4 + 4 : 1]
    assert symbolic.dtype == "float32x4" and structural_equal(symbolic.indices[1], Ramp(j * 4, 1, 4))
    assert A[i, j - 2 : j + 2 : 1].dtype == "float32x4" and A[i, j : j + 1 : 1].dtype == "float32"
    wide = Var("w", "int64")
    assert A[i, wide : wide + 4 : 1].indices[1].stride.dtype == "int64"
    for wrong in (slice(0, n, 1), slice(i, j, 1), slice(0, 8, n), slice(8, 0, -1)):
        with pytest.raises(ValueError, match="must have a constant step greater than 0 and a constant size"):
            A[i, wrong]
    with pytest.raises(ValueError, match="is empty"):
        A[i, 4:4:1]
    with pytest.raises(ValueError, match="only the last index may be a slice with a step"):
        A[0:8:2, 0:4]


def test_vector_access() -> None:
    assert A.vload((i, j)).dtype == "float32" and A.vload((i, 0), "float32x4").dtype == "float32x4"
    store = A.vstore((i, j), const(1.0, "float32x8"))
    assert store.__class__ is BufferStore and store.indices[1].dtype == "int32x8"
    assert decl_buffer((4,)).vload(i).indices[0] is i
    with pytest.raises(TypeError, match="storing a value of type int32 into A, which takes float32"):
        A.vstore((i, j), const(1))


def test_stores_are_checked() -> None:
    assert BufferStore(A, 1, [i, j]).value.dtype == "float32"
    with pytest.raises(ValueError, match="buffer A has 2 dimensions and was indexed with 1"):
        BufferStore(A, 1.0, [i])
    with pytest.raises(TypeError, match="which takes float32x4"):
        BufferStore(A, const(1.0), [i, Ramp(0, 1, 4)])


# -- addresses ----------------------------------------------------------------------------------
def test_offsets() -> None:
    assert [s.value for s in A.dense_strides()] == [16, 1]
    assert structural_equal(A.offset_of([i, j])[0], i * 16 + j)
    strided = decl_buffer((8, 16), strides=[32, 2], elem_offset=5)
    assert strided.offset_of([1, 3])[0].value == 5 + 32 + 6
    n = SizeVar("n")
    late = decl_buffer((Var("m"), n), elem_offset=100)
    assert (
        str(late.offset_of([2, 3])[0]) == "n * 2 + 103" and str(late.offset_at([2, 3])) == "100 + 2 * n + 3"
    )
    with pytest.raises(ValueError):
        A.offset_of([i])


def test_access_ptr() -> None:
    made = A.access_ptr("rw")
    kind, data, offset, extent, mask = made.args
    assert made.op.name == "tir.tvm_access_ptr" and kind.dtype == "float32" and data is A.data
    assert (offset.value, extent.value, mask.value) == (0, 128, 3)
    assert A.access_ptr("r").args[4].value == 1 and A.access_ptr(2).args[4].value == 2
    part = A.access_ptr("w", offset=16)
    assert (part.args[2].value, part.args[3].value) == (16, 112), "what is left behind the offset"
    assert A.access_ptr("r", extent=4).args[3].value == 4
    vectors = A.access_ptr("r", content_lanes=4)
    assert vectors.args[0].dtype == "float32x4" and vectors.args[3].value == 32
    strided = decl_buffer((8, 16), strides=[32, 1])
    assert strided.access_ptr("r").args[3].value == 256
    with pytest.raises(ValueError, match="the mask is r, w or rw, not 'x'"):
        A.access_ptr("x")


# -- regions ------------------------------------------------------------------------------------
def test_regions() -> None:
    full = BufferRegion.full(A)
    assert [(r.min.value, r.extent.value) for r in full.region] == [(0, 8), (0, 16)]
    point = BufferRegion.point(A, [i, const(2)])
    assert point.region[0].min is i and all(
        isinstance(r.extent, IntImm) and r.extent.value == 1 for r in point.region
    )
    assert full.map_children(lambda r: r) is full
