"""Sums of products with quantized weights: split_scales and pack_bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from schedule_checks import replays
from word_programs import blockwise, data, product

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import ScheduleError


def split(func: Any, size: int, words: bool = True) -> tir.Schedule:
    sch = tir.Schedule(func)
    sums, *_ = sch.split_scales("C", sch.get_loops("C")[2], size)
    if words:
        sch.pack_bits(sums, sch.get_loops(sums)[-1])
    return sch


def check(func: Any, sch: tir.Schedule) -> None:
    want, got = data(func), data(func)
    compiled = [tvm.nd.array(x) for x in want]
    tir.interpret(func, *want)
    tir.interpret(sch.mod["main"], *got)
    with tvm.transform.PassContext(opt_level=0):
        tvm.build(sch.mod, target="llvm")(*compiled)
    for x in (got[-1], compiled[-1].numpy()):
        np.testing.assert_allclose(x, want[-1], rtol=1e-4, atol=1e-4 * np.abs(want[-1]).max())
    replays(func, sch)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize(("bits", "block"), [(4, 8), (2, 16), (8, 16)])
def test_the_result_is_the_same(bits: int, block: int, zeros: bool) -> None:
    func = blockwise(block=block, bits=bits, zeros=zeros)
    sch = split(func, block)
    blocks = [b.name for b in sch.get_child_blocks(sch.get_block("root"))]
    data_sums = ["C_data"] if zeros else []
    assert blocks == ["C_blocks_words", "C_blocks", *data_sums, "C"]
    check(func, sch)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize(("bits", "block"), [(4, 8), (2, 16), (8, 4)])
def test_sums_of_bytes_by_dot_products(bits: int, block: int, zeros: bool) -> None:
    func = blockwise(block=block, bits=bits, zeros=zeros, rounded=True)
    sch = tir.Schedule(func)
    sums, *_ = sch.split_scales("C", sch.get_loops("C")[2], block, integers=True)
    words = sch.pack_dot_bits(sums, sch.get_loops(sums)[-1])
    assert sch.realize(words).block.name_hint == "C_blocks_words"
    assert "dp4a" in str(sch.mod)
    check(func, sch)


def test_refusals_of_dot_products() -> None:
    sch = tir.Schedule(blockwise(k=24, block=12, rounded=True))
    with pytest.raises(ScheduleError, match="block C is not a sum of int32"):
        sch.pack_dot_bits("C", sch.get_loops("C")[2])
    sums, *_ = sch.split_scales("C", sch.get_loops("C")[2], 12, integers=True)
    with pytest.raises(ScheduleError, match="has 12 steps, and a word holds 8 integers of 4 bits"):
        sch.pack_dot_bits(sums, sch.get_loops(sums)[-1])
    with pytest.raises(ScheduleError, match="is no step of the sum in block C_blocks"):
        sch.pack_dot_bits(sums, sch.get_loops(sums)[0])
    plain = tir.Schedule(blockwise())
    with pytest.raises(ScheduleError, match="block C does not multiply two integers of 8 bits"):
        plain.split_scales("C", plain.get_loops("C")[2], 8, integers=True)
    other = tir.Schedule(product("uint8", "int8", transposed=(True, True)))
    with pytest.raises(ScheduleError, match="does not multiply signed bytes, neighbours in memory"):
        other.pack_dot_bits("C", other.get_loops("C")[2])


@pytest.mark.parametrize("size", [4, 2])
def test_smaller_blocks_than_those_of_the_scales(size: int) -> None:
    func = blockwise()
    check(func, split(func, size, words=False))


def test_signed_numbers_keep_their_signs_in_words() -> None:
    x, w = te.placeholder((2, 16), name="x"), te.placeholder((3, 16), "int8", name="w")
    s, k = te.placeholder((3, 2), name="s"), te.reduce_axis((0, 16), name="k")

    def term(i: Any, j: Any) -> Any:
        low = te.max(te.min(w(j, k), te.const(7, "int8")), te.const(-8, "int8"))
        return te.sum(x(i, k) * low.astype("float32") * s(j, te.floordiv(k, 8)), axis=k)

    func = te.create_prim_func([x, w, s, te.compute((2, 3), term, name="C")])
    sch = split(func, 8)
    assert "shift_left" in str(sch.mod["main"])
    check(func, sch)


def test_refusals() -> None:
    sch = tir.Schedule(blockwise())
    before = str(sch.mod)
    i, _, k = sch.get_loops("C")
    for steps, why in (
        (lambda: sch.split_scales("C", i, 8), "loop `i` is no step of the sum in block C"),
        (lambda: sch.split_scales("C", k, 5), "block C does not have a multiple of 5 steps"),
        (
            lambda: sch.split_scales("C", k, 16),
            "block C has neither a scale nor a zero point for each 16 steps",
        ),
        (lambda: sch.pack_bits("C", i), "block C does not convert one integer to a float in each step"),
    ):
        with pytest.raises(ScheduleError, match=why):
            steps()
        assert str(sch.mod) == before


def test_a_word_takes_whole_steps() -> None:
    sch = tir.Schedule(blockwise(k=24, block=12))
    sums, *_ = sch.split_scales("C", sch.get_loops("C")[2], 12)
    with pytest.raises(ScheduleError, match="has 12 steps, and a word holds 8 integers of 4 bits"):
        sch.pack_bits(sums, sch.get_loops(sums)[-1])
