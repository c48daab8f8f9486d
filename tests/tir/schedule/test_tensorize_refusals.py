"""What tensorize refuses, and what it says."""

from __future__ import annotations

import pytest
from schedule_programs import copy2d
from tensorize_programs import fill_desc, fill_impl, register_tiles, tile_desc, tiled, whole_desc

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import rewrite, substitute
from tilewright.script import tir as T


@pytest.fixture(autouse=True)
def intrinsics():
    register_tiles()


# ---------------------------------------------------------------------------- refusals
def test_a_tile_of_another_size_is_refused(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(k=6)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile")),
        """
        tensorize(i_1, tensor_intrin='test.tile'): block C_o does not do what test.tile describes: loop `k_1` runs 6 times and the intrinsic's `z` 4
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 2, 4, 8, 6):    # <-- here
          | …

          | block C_o                                                   | test.tile
          | for i_1, j_1, k_1 in T.grid(4, 8, 6):    # <-- here         | for x, y, z in T.grid(4, 8, 4):    # <-- here
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1,   |     C[x, y] = C[x, y] + B[z, y] * A[x, z]
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, vk_o * 6 + k_1] |
          |         * B[vk_o * 6 + k_1, vj_o * 8 + j_1]                 |
        """,
    )


def test_another_operation_is_refused(expect, refused):
    @T.prim_func
    def squares(
        A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")
    ):
        for i, j, k in T.grid(8, 16, 12):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + (A[vi, vk] - B[vk, vj])

    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(func=squares)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile")),
        """
        tensorize(i_1, tensor_intrin='test.tile'): block C_o does not do what test.tile describes: `A[vi_o * 4 + i_1, vk_o * 4 + k_1] - B[vk_o * 4 + k_1, vj_o * 8 + j_1]` is not `B[z, y] * A[x, z]`
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          | block C_o                                                    | test.tile
          | for i_1, j_1, k_1 in T.grid(4, 8, 4):                        | for x, y, z in T.grid(4, 8, 4):
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1,    |     C[x, y] = C[x, y] + B[z, y] * A[x, z]    # <-- here
          |         vj_o * 8 + j_1] + (A[vi_o * 4 + i_1, vk_o * 4 + k_1] |
          |         - B[vk_o * 4 + k_1, vj_o * 8 + j_1])    # <-- here   |
        """,
    )


def test_a_transposed_operand_is_refused(expect, refused):
    @T.prim_func
    def transposed(
        A: T.Buffer((8, 12), "float32"), B: T.Buffer((16, 12), "float32"), C: T.Buffer((8, 16), "float32")
    ):
        for i, j, k in T.grid(8, 16, 12):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(func=transposed)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile")),
        """
        tensorize(i_1, tensor_intrin='test.tile'): block C_o does not do what test.tile describes: `A[vi_o * 4 + i_1, vk_o * 4 + k_1]` is not `B[z, y]`: `vi_o * 4 + i_1` does not go as `z` does
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          | block C_o                                                   | test.tile
          | for i_1, j_1, k_1 in T.grid(4, 8, 4):                       | for x, y, z in T.grid(4, 8, 4):
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1,   |     C[x, y] = C[x, y] + B[z, y] * A[x, z]    # <-- here
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, vk_o * 4 + k_1] |
          |         * B[vj_o * 8 + j_1, vk_o * 4 + k_1]    # <-- here   |
        """,
    )


def test_another_type_is_refused(expect, refused):
    @T.prim_func
    def halves(A: T.Buffer((8, 8), "float16")):
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float16(0)

    sch = tir.Schedule(halves)
    i, j = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.fill")),
        """
        tensorize(i_1, tensor_intrin='test.fill'): block C_o does not do what test.fill describes: `T.float16(0)` is float16 and `T.float32(0)` is float32
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, i_1, j in T.grid(2, 4, 8):    # <-- here
          | …

          | block C_o                                             | test.fill
          | for i_1, j in T.grid(4, 8):                           | for x, y in T.grid(4, 8):
          |     A[vi_o * 4 + i_1, j] = T.float16(0)    # <-- here |     C[x, y] = T.float32(0)    # <-- here
        """,
    )


def test_another_memory_is_refused(expect, refused):
    @T.prim_func
    def through(B: T.Buffer((4, 8), "float32")):
        A = T.alloc_buffer((4, 8), scope="shared")
        for i, j in T.grid(4, 8):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float32(0)
        for i, j in T.grid(4, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    sch = tir.Schedule(through)
    i, j = sch.get_loops("A")
    expect(
        refused(sch, lambda: sch.tensorize(i, "test.fill")),
        """
        tensorize(i, tensor_intrin='test.fill'): block A_o does not do what test.fill describes: `A[i, j]` is not `C[x, y]`: A lies in shared and C in global
          at test_tensorize_refusals.py:LINE

          | …
          |     for i, j in T.grid(4, 8):    # <-- here
          | …

          | block A_o                                | test.fill
          | for i, j in T.grid(4, 8):                | for x, y in T.grid(4, 8):
          |     A[i, j] = T.float32(0)    # <-- here |     C[x, y] = T.float32(0)    # <-- here
        """,
    )


def test_an_init_that_only_one_of_both_has_comes_with_a_hint(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(k=12)
    tir.TensorIntrin.register("test.whole_update", *[_without_init(whole_desc)] * 2, override=True)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.whole_update")),
        """
        tensorize(i_1, tensor_intrin='test.whole_update'): block C_o does not do what test.whole_update describes: there is a sequence of statements where the intrinsic has a store
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 1, 4, 8, 12):    # <-- here
          | …

          | block C_o                                                 | test.whole_update
          | for i_1, j_1, k_1 in T.grid(4, 8, 12):                    | for x, y, z in T.grid(4, 8, 12):
          |     if k_1 == 0:                                          |     C[x, y] = C[x, y] + A[x, z] * B[z, y]    # <-- here
          |         C[vi_o * 4 + i_1, vj_o * 8 + j_1] = T.float32(0)  |
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1, |
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, k_1] * B[k_1, |
          |         vj_o * 8 + j_1]                                   |

          hint: the intrinsic does not initialise: call decompose_reduction on block C first
        """,
    )
    sch.decompose_reduction(block, k_0)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.whole")),
        """
        tensorize(i_1, tensor_intrin='test.whole'): block C_o does not do what test.whole describes: there is a store where the intrinsic has a sequence of statements
          at test_tensorize_refusals.py:LINE

          | …
          |         for k_0, i_1, j_1, k_1 in T.grid(1, 4, 8, 12):    # <-- here
          | …

          | block C_o                                                 | test.whole
          | for i_1, j_1, k_1 in T.grid(4, 8, 12):                    | for x, y, z in T.grid(4, 8, 12):
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1, |     if z == 0:
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, k_1] * B[k_1, |
          |         vj_o * 8 + j_1]    # <-- here                     |
          |                                                           |         C[x, y] = T.float32(0)
          |                                                           |     C[x, y] = C[x, y] + A[x, z] * B[z, y]

          hint: the intrinsic initialises: leave the init in the block, and the whole reduction in loops inside
        """,
    )
    sch.tensorize(i_1, "test.whole_update")


def _without_init(func):
    return func.replace(body=rewrite(func.body, {tir.Block: lambda b: b.replace(init=None)}))


def test_an_intrinsic_that_wants_one_piece_of_memory_is_refused_a_tile(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile_dense")),
        """
        tensorize(i_1, tensor_intrin='test.tile_dense'): the intrinsic takes A as one piece of memory (through its pointer), and the rows of the region of A lie 12 elements apart
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          hint: stage A by cache_read, or give A strides that are variables in the impl
        """,
    )


def test_one_piece_of_memory_can_be_a_tile_that_is_staged():
    """Lowering cuts the copies of A and B to the tile, and then they lie in one piece; C does not."""
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    for operand in (0, 1):
        sch.compute_at(sch.cache_read(block, operand, "global"), k_0)
    late = sch.copy()
    written = sch.cache_write(block, 0, "global")
    sch.reverse_compute_at(written, j_0)
    sch.tensorize(i_1, "test.tile_dense")
    text = tvm.lower(sch.mod)["main"].script()
    assert "A_global, 0, 16, 1)" in text and "C_global, 0, 32, 3)" in text
    # A copy that is made far out stays as wide as it is.
    late.cache_write(block, 0, "global")
    late.tensorize(i_1, "test.tile_dense")
    with pytest.raises(LoweringError) as caught:
        tvm.lower(late.mod)
    assert str(caught.value) == (
        "block C_o uses C, a view of C_global, as contiguous memory (through its pointer), and its row stride is "
        "16 elements; give C strides that are variables"
    )


def test_one_name_for_two_strides_is_refused(expect, refused):
    @T.prim_func
    def shared(a: T.handle, b: T.handle, c: T.handle):
        s = T.int32()
        A = T.match_buffer(a, (4, 4), strides=[s, 1], offset_factor=1)
        B = T.match_buffer(b, (4, 8), strides=[s, 1], offset_factor=1)
        C = T.match_buffer(c, (4, 8), offset_factor=1)
        with T.block("root"):
            T.reads(C[0:4, 0:8], A[0:4, 0:4], B[0:4, 0:8])
            T.writes(C[0:4, 0:8])
            C[0, 0] = A[0, 0] * B[0, 0]

    tir.TensorIntrin.register("test.shared", tile_desc, shared, override=True)
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.shared")),
        """
        tensorize(i_1, tensor_intrin='test.shared'): the intrinsic calls two strides `s`, and one is 12, the other (of B) 16
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          hint: give each stride a variable of its own in the impl
        """,
    )


def test_a_pointer_without_an_offset_is_refused_a_region_that_has_one(expect, refused):
    @T.prim_func
    def at_zero(C: T.Buffer((4, 8), "float32")):
        with T.block("root"):
            T.reads()
            T.writes(C[0:4, 0:8])
            T.evaluate(T.call_extern("int32", "fill", C.access_ptr("w")))

    tir.TensorIntrin.register("test.at_zero", fill_desc, at_zero, override=True)

    @T.prim_func
    def fill(C: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)

    sch = tir.Schedule(fill)
    i, j = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.at_zero")),
        """
        tensorize(i_1, tensor_intrin='test.at_zero'): the intrinsic uses the pointer of C and leaves no room for an offset, and the region of C starts at vi_o * 32
          at test_tensorize_refusals.py:LINE

          | …
          |     for i_0, i_1, j in T.grid(2, 4, 8):    # <-- here
          | …

          hint: declare C with offset_factor=1 in the impl
        """,
    )


def test_alignment_and_offsets_are_held_to(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    init = sch.decompose_reduction(block, k_0)
    loop = sch.get_loops(init)[2]
    register = tir.TensorIntrin.register
    desc = fill_desc
    register("test.f16", desc, _fill_with(offset_factor=16), override=True)
    register("test.f8", desc, _fill_with(offset_factor=8), override=True)
    register("test.align", desc, _fill_with(align=128), override=True)
    register("test.strided", desc, _fill_with(strides=(8, 1)), override=True)
    expect(
        refused(sch, lambda: sch.tensorize(loop, "test.f16")),
        """
        tensorize(i_1_init, tensor_intrin='test.f16'): the intrinsic takes C at a multiple of 16 elements, and the region of C starts at vi_o * 64 + vj_o * 8
          at test_tensorize_refusals.py:LINE

          | …
          |         for i_1_init, j_1_init in T.grid(4, 8):    # <-- here
          | …

          hint: split by multiples of it, or pad the rows with storage_align
        """,
    )
    expect(
        refused(sch, lambda: sch.tensorize(loop, "test.align")),
        """
        tensorize(i_1_init, tensor_intrin='test.align'): the intrinsic takes C aligned to 128 bytes, and C is aligned to 64
          at test_tensorize_refusals.py:LINE

          | …
          |         for i_1_init, j_1_init in T.grid(4, 8):    # <-- here
          | …

          hint: take a copy of it with cache_read or cache_write, which is aligned
        """,
    )
    expect(
        refused(sch, lambda: sch.tensorize(loop, "test.strided")),
        """
        tensorize(i_1_init, tensor_intrin='test.strided'): the intrinsic takes C with stride 8 in dimension 0, and C has 16 there
          at test_tensorize_refusals.py:LINE

          | …
          |         for i_1_init, j_1_init in T.grid(4, 8):    # <-- here
          | …

          hint: take a copy with cache_read or cache_write, and give it these strides with storage_align
        """,
    )
    sch.tensorize(loop, "test.f8")


def _fill_with(offset_factor=0, align=0, strides=()):
    C = tir.decl_buffer(
        (4, 8), name="C", offset_factor=offset_factor or 1, data_alignment=align or -1, strides=strides
    )
    old = next(iter(fill_impl.buffer_map.values()))
    body = substitute(fill_impl.body, {}, {old: C})
    (param,) = fill_impl.params
    return fill_impl.replace(body=body, buffer_map={param: C})


def test_what_is_written_may_not_be_read_under_another_name(expect, refused):
    @T.prim_func
    def copy_desc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        with T.block("root"):
            T.reads(A[0:4])
            T.writes(B[0:4])
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi]

    @T.prim_func
    def shift(A: T.Buffer((8,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi + 1]

    tir.TensorIntrin.register("test.copy", copy_desc, copy_desc, override=True)
    sch = tir.Schedule(shift)
    (i,) = sch.get_loops("A")
    expect(
        refused(sch, lambda: sch.tensorize(i, "test.copy")),
        """
        tensorize(i, tensor_intrin='test.copy'): block A_o does not do what test.copy describes: B, which the intrinsic writes, and A are both A
          at test_tensorize_refusals.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          | block A_o                        | test.copy
          | for i in range(4):    # <-- here | for i in range(4):    # <-- here
          |     A[i] = A[i + 1]              |     B[i] = A[i]
        """,
    )


def test_a_loop_bound_to_threads_is_refused(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops("B")

    @T.prim_func
    def row(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
        with T.block("root"):
            T.reads(A[0:12])
            T.writes(B[0:12])
            for i in range(12):
                with T.block("B"):
                    vi = T.axis.spatial(12, i)
                    B[vi] = A[vi] + T.float32(1)

    tir.TensorIntrin.register("test.row", row, row, override=True)
    sch.bind(j, "threadIdx.x")
    expect(
        refused(sch, lambda: sch.tensorize(j, "test.row")),
        """
        tensorize(j, tensor_intrin='test.row'): block B_o does not do what test.row describes: loop `j` is bound to threadIdx.x and the intrinsic's `i` is not bound
          at test_tensorize_refusals.py:LINE

          | …
          |         for j in T.thread_binding(12, thread="threadIdx.x"):    # <-- here
          | …

          | block B_o                                                 | test.row
          | for j in T.thread_binding(12, thread="threadIdx.x"):    # | for i in range(12):    # <-- here
          |     <-- here                                              |
          |     B[vi_o, j] = A[vi_o, j] + T.float32(1)                |     B[i] = A[i] + T.float32(1)
        """,
    )


def test_a_name_that_is_not_registered_is_refused(expect, refused):
    known = tir.TensorIntrin.get("test.tile")
    tir.TensorIntrin.register("spelt.right", known.desc, known.impl, override=True)
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "spelt.rihgt")),
        """
        tensorize(i_1, tensor_intrin='spelt.rihgt'): no tensor intrinsic is registered as 'spelt.rihgt'; did you mean 'spelt.right'?
          at test_tensorize_refusals.py:LINE

          | …
        """,
    )


def test_handles_of_what_was_replaced_say_so(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    sch.tensorize(i_1, "test.tile")
    expect(
        refused(sch, lambda: sch.unroll(j_1)),
        """
        unroll(j_1): loop `j_1` no longer exists: it was removed by tensorize(i_1, …)
          at test_tensorize_refusals.py:LINE

          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.get_loops(block)),
        """
        get_loops(C): block C no longer exists: it was removed by tensorize(i_1, …)
          at test_tensorize_refusals.py:LINE

          | …
        """,
    )
