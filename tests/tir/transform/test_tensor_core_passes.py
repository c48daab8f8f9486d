"""The passes for tensor cores, each alone: what it makes of a small program, and that others stay as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from tensor_core_programs import HOPPER, attention, by_warpgroups, convolution, scheduled

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import phases
from tilewright.ir.errors import LoweringError
from tilewright.ir.transform import run_passes
from tilewright.script import tir as T

PASSES = ("LowerBulkCopies", "LowerFragments", "SpecializeWarps", "InjectPTXAsyncCopy")


@pytest.mark.parametrize("name", PASSES)
def test_others_stay_as_they_are(name: str) -> None:
    A = te.placeholder((8,), name="A")
    mod = tvm.lower(te.create_prim_func([A, te.compute((8,), lambda i: A[i] + 1.0)]))
    assert getattr(tir.transform, name)()(mod)["main"] is mod["main"]


def until(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """A module lowered by the passes before the one of that name, and that one."""
    with tvm.target.Target("cuda -arch=sm_90a"):
        passes = [p for phase in phases() for p in phase]
    at = next(i for i, p in enumerate(passes) if p.info.name == f"tir.{name}")
    return run_passes(passes[: at + 1], mod)


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    with tvm.target.Target("cuda -arch=sm_90a"):
        return tvm.lower(mod)


def test_a_tile_becomes_one_copy_or_several() -> None:
    text = until(by_warpgroups(64, 128, 128, 64, 128, 2).mod, "LowerBulkCopies").script()
    calls = [line.strip() for line in text.splitlines() if "ptx_cp_async_bulk_tensor" in line]
    assert len(calls) == 3  # 64 x 64 of A, and B in two pieces
    assert 'T.tensor_map(A.data, "float16", 2, 128, 64, 256, 64, 64' in calls[0]
    assert 'T.tensor_map(B.data, "float16", 2, 128, 128, 256, 64, 64' in calls[1]
    assert "4096, 4096, 2)" in calls[2] and "k_0 * 64" in calls[2]


def test_fragments_are_registers_of_each_thread() -> None:
    text = until(by_warpgroups(64, 64, 128, 64, 64, 2).mod, "LowerFragments").script()
    assert 'C = T.decl_buffer((32,), scope="local")' in text
    assert "C[ax1_0 * 4 + ax0_1 * 2 + ax1_2]" in text


def test_a_ring_of_copies_has_two_barriers_for_each() -> None:
    text = until(by_warpgroups(128, 64, 256, 128, 64, 3).mod, "SpecializeWarps").script()
    assert 'T.launch_thread("threadIdx.y", 3)' in text
    assert 'barriers = T.allocate([6], "uint64", "shared.async")' in text
    assert 'T.allocate([24576], "float16", "shared.async")' in text and text.count("ptx_init_barrier") == 6
    fetch, multiply = text.split("_1 == 2:")[1].split("else:")
    assert fetch.count("ptx_wait_barrier") == fetch.count("ptx_arrive_barrier_expect_tx") == 1
    assert "ptx_wgmma" not in fetch and "ptx_cp_async_bulk_tensor" not in multiply
    assert (
        multiply.count("ptx_arrive_barrier(") == 3
    )  # in the loop for the one before, after it for the last two


@pytest.mark.parametrize("steps", [1, 4])
def test_the_last_product_stands_behind_the_loop(steps: int) -> None:
    """What reads its sums may not be moved before the wait for it, as it was where a loop ended with it on its way."""
    text = until(by_warpgroups(128, 64, 64 * steps, 128, 64, 2).mod, "SpecializeWarps").script()
    lines = [line for line in text.split("else:")[1].splitlines() if "ptx_" in line or "for k" in line]
    products = [i for i, line in enumerate(lines) if "ptx_wgmma(" in line]
    assert len(products) == (1 if steps == 1 else 2)
    last = products[-1]
    assert "ptx_wgmma_wait(0)" in lines[last + 1] and text.count("ptx_wgmma_wait(0)") == 1
    assert text.count("ptx_wgmma_wait(1)") == (steps > 1) == ("for k" in "".join(lines))


@T.prim_func
def copies(A: T.Buffer((256,), "float16"), B: T.Buffer((256,), "float16")) -> None:
    tx = T.launch_thread("threadIdx.x", 16)
    S = T.allocate([256], "float16", "shared")
    S_1 = T.Buffer((256,), "float16", data=S, scope="shared")
    with T.attr(0, "async_scope", 1):
        S_1[tx * 8 : tx * 8 + 8] = A[tx * 8 : tx * 8 + 8]
        S_1[tx * 8 + 128 : tx * 8 + 136] = T.if_then_else(
            tx < 9, A[tx * 8 + 128 : tx * 8 + 136], T.Broadcast(T.float16(0), 8)
        )
        S_1[tx] = A[tx]  # two bytes are too few
    B[tx] = S_1[255 - tx]


def test_copies_of_four_to_sixteen_bytes_are_asynchronous() -> None:
    text = tir.transform.InjectPTXAsyncCopy()(tvm.IRModule({"main": copies}))["main"].script()
    assert 'T.ptx_cp_async("float16", S, tx * 8, A.data, tx * 8, 16)' in text
    assert 'T.ptx_cp_async("float16", S, tx * 8 + 128, A.data, tx * 8 + 128, 16, tx < 9)' in text
    assert "S_1[tx] = A[tx]" in text and "async_scope" not in text


def test_a_copy_that_a_condition_turns_off_leaves_zeros() -> None:
    import numpy as np

    made = tir.transform.InjectPTXAsyncCopy()(tvm.IRModule({"main": copies}))["main"]
    a = np.arange(1, 257).astype("float16")
    for func in (copies, made):
        b = np.zeros(256, "float16")
        tir.interpret(tir.transform.ThreadSync("shared")(tvm.IRModule({"main": func}))["main"], a, b)
        assert not b[:16].any()


def test_tiles_that_bulk_copies_do_not_have() -> None:
    A = te.placeholder((64, 96), "float16", name="A")
    B = te.compute((64, 96), lambda i, j: A[i, j], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.annotate(sch.blockize(sch.get_loops("B")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(LoweringError, match="a tile of 64 x 96 is made of pieces of n x 64"):
        lowered(sch.mod)
    turned = te.compute((64, 64), lambda i, j: te.placeholder((64, 64), "float16", name="C")[j, i], name="D")
    sch = tir.Schedule(te.create_prim_func([turned.op.input_tensors[0], turned]))
    sch.annotate(sch.blockize(sch.get_loops("D")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(LoweringError, match="the loops traverse the tile and the tensor in the same order"):
        lowered(sch.mod)


@pytest.mark.parametrize(
    ("edge", "told"), [(50, ""), (49, "the condition `i < 49` is only a bounds check of the tensor")]
)
def test_only_the_end_of_the_tensor_may_be_asked_for(edge: int, told: str) -> None:
    A = te.placeholder((50, 64), "float16", name="A")
    B = te.compute(
        (64, 64), lambda i, j: tir.if_then_else(i < edge, A[i, j], tir.const(0, "float16")), name="B"
    )
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.annotate(sch.blockize(sch.get_loops("B")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(LoweringError, match=told or "is in no loop"):  # it is one; nobody waits for it here
        lowered(sch.mod)


# ---------------------------------------------------------------------------- views
def copies_of(args: list[te.Tensor]) -> list[str]:
    """The copies of the kernel that a convolution becomes by rules."""
    text = until(scheduled(args, HOPPER, "wgmma").mod, "LowerBulkCopies").script()
    assert "tilewright.view" not in text
    return [line.strip() for line in text.splitlines() if "ptx_cp_async_bulk_tensor" in line]


def test_windows_are_walked_through() -> None:
    """Channels and pixels, where walks begin and end beside the image, their steps; then where one begins, and the place
    in its windows."""
    data, weights = copies_of(convolution((2, 10, 12, 64), 64, (3, 5), strides=(1, 2), padding=(1, 2)))
    sizes = 'T.tensor_map(x.data, "float16", 4, 64, 12, 10, 2, 128, 1536, 15360, '
    assert sizes + '64, 64, -2, -1, -3, -1, 2, 1, dtype="handle"), 0, 0, ' in data
    block = "ax0_0_0_ax1_0_ax0_0_1_fused"
    begin = f"{block} * 2 % 3 * 4 - 2, {block} * 32 // 3 % 10 - 1, {block} * 16 // 15"
    assert data.endswith(f'{begin}, "windows", ax2_0 % 5, ax2_0 // 5)')
    assert 'T.tensor_map(w.data, "float16", 4, 64, 64, 5, 3, 128, 8192, 40960, 64, 64, 1, 1' in weights


def test_one_place_without_padding_is_the_same_memory() -> None:
    data, weights = copies_of(convolution((2, 10, 12, 72), 64, (1, 1)))
    assert 'T.tensor_map(x.data, "float16", 2, 72, 240, 144, 64, 64, ' in data and "windows" not in data
    assert 'T.tensor_map(w.data, "float16", 4, 64, 72, 1, 1' in weights


def test_lines_of_channels_belong_to_one_place() -> None:
    """Of 40 channels 64 are taken: the rest is 0."""
    data, weights = copies_of(convolution((2, 10, 12, 40), 64, (3, 3), padding=1))
    assert (
        'T.tensor_map(x.data, "float16", 4, 40, 12, 10, 2, 80, 960, 9600, 64, 64, -1, -1, -1, -1, 1, 1, '
        in data
    )
    assert 'T.tensor_map(w.data, "float16", 4, 64, 40, 3, 3' in weights


def view(index: object, mark: list[int], **facts: int) -> tir.Schedule:
    """Pixels of 2 images of 8 x 8, in lines of 64 channels, as `index(m, k)` takes them."""
    A = te.placeholder((2, 8, 8, 64), "float16", name="A")
    V = te.compute((128, 64), lambda m, k: index(A, m, k), name="V")  # type: ignore[operator]
    S = te.compute((128, 64), lambda m, k: V[m, k], name="S")
    sch = tir.Schedule(te.create_prim_func([A, S]))
    sch.annotate(sch.get_block("V"), "tilewright.view", mark)
    if facts.get("copy", 1):
        sch.annotate(sch.blockize(sch.get_loops("S")[0]), "tilewright.bulk_copy", 1)
    return sch


def pixel(A: te.Tensor, m: tir.Var, k: tir.Var) -> tir.PrimExpr:
    return A[m // 64, m // 8 % 8, m % 8, k]


@pytest.mark.parametrize(
    ("index", "mark", "told"),
    [
        (
            lambda A, m, k: A[m // 64, m % 8, m // 8 % 8, k],
            [2, 8, 8],
            "has strides of 1 to 8 over pixels and windows",
        ),
        (lambda A, m, k: pixel(A, m, k) * tir.const(2, "float16"), [2, 8, 8], "copies elements as they are"),
        (lambda A, m, k: pixel(A, m, 63 - k), [2, 8, 8], "the index `63 - k` uses at most one loop"),
        (lambda A, m, k: A[1 - m // 64, m // 8 % 8, m % 8, k], [2, 8, 8], "selects the image"),
        (
            lambda A, m, k: tir.if_then_else(m < 100, pixel(A, m, k), tir.const(0, "float16")),
            [2, 8, 8],
            "the condition `m < 100` is only a bounds check",
        ),
        (
            lambda A, m, k: A[m // 64, m // 8 % 8, m % 8, 63 - k],
            [2, 64],
            "its source is images of one to three",
        ),
    ],
)
def test_what_is_no_view(index: object, mark: list[int], told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        lowered(view(index, mark).mod)


def test_a_view_is_for_bulk_copies() -> None:
    with pytest.raises(LoweringError, match="V is a view, which is not stored: only bulk copies"):
        lowered(view(pixel, [2, 8, 8], copy=0).mod)


# ---------------------------------------------------------------------------- two products in a loop
def specialized(width: int) -> tuple[str, str]:
    """An attention over some parts of keys: what fetches, and what computes."""
    sch = tvm.auto_schedule(attention(2, 16, 512, width), HOPPER)  # a tile for each processor
    text = until(sch.mod, "SpecializeWarps").script()
    fetch, compute = text.split("_1 == 2:")[1].split("else:")
    return fetch, compute


def in_this_order(text: str, *words: str) -> bool:
    places = [text.index(w) for w in words]
    return places == sorted(places)


@pytest.mark.slow
def test_sums_are_waited_for_where_they_are_used() -> None:
    fetch, compute = specialized(192)
    assert in_this_order(
        compute,
        "ptx_wgmma(",
        "ptx_wgmma_wait(0)",
        "T_attention_logits[",
        "ptx_wgmma_registers(",
        "ptx_arrive_barrier(",
    )
    assert compute.count("ptx_wgmma_wait") == 2
    assert "tvm_fill_fragment(T_attention_scores" not in compute  # the first product does not add
    # What is copied before the loop has barriers of its own, after those of three versions.
    before, loop = fetch.split("for part")
    assert "q_map" in before and "k_map" in loop and "v_map" in loop and "q_map" not in loop
    assert before.count("expect_tx") == loop.count("expect_tx") == 1
    assert "barriers, 6" in before and "ptx_cp_async" not in compute
    assert in_this_order(compute, "ptx_wait_barrier(", "ptx_wgmma(")


@pytest.mark.slow
def test_products_at_the_end_wait_for_those_of_the_next_turn() -> None:
    _, compute = specialized(128)
    before, loop = compute.split("for part")
    assert before.count("ptx_wgmma(") == 2 and "ptx_wgmma_registers" not in before
    inside, after = loop.split("ptx_narrow_fragment")
    assert in_this_order(
        inside,
        "ptx_wgmma(",
        "ptx_wgmma_registers(",
        "ptx_wgmma_wait(2)",
        '"max"',
        "ptx_wgmma_wait(0)",
        "ptx_arrive_barrier(",
    )
    assert after.count("ptx_wgmma_registers(") == 2 and after.count("ptx_arrive_barrier(") == 1
