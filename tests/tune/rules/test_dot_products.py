"""Products of numbers of 8 and 16 bits on CPUs: the instructions that are chosen, and what they compute."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from word_programs import convolution, data, product

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.tune.explain import Explanation
from tilewright.tune.plan import Choice, plan_of
from tilewright.tune.program.facts import facts_of
from tilewright.tune.program.stages import Stage, Stages
from tilewright.tune.rules import Refusal
from tilewright.tune.rules.cpu.dot_products import DotProducts
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

X86 = "llvm -mtriple=x86_64-linux-gnu -num-cores=2 -mcpu="
ARM = "llvm -mtriple=aarch64-linux-gnu -num-cores=2 -mcpu="


def choices(func: Any, target: str, constants: tuple[str, ...] = ()) -> list[Choice]:
    return plan_of(func, tvm.target.Target(target), constants).choices


@pytest.mark.parametrize(
    ("target", "kinds", "instruction"),
    [
        (X86 + "cascadelake", ("uint8", "int8"), "vpdpbusd"),
        (X86 + "cascadelake", ("int8", "int8"), "vpdpbusd"),
        (X86 + "cascadelake", ("int16", "int16"), "vpdpwssd"),
        (X86 + "alderlake", ("uint8", "int8"), "vpdpbusd"),
        (X86 + "sapphirerapids", ("bfloat16", "bfloat16"), "vdpbf16ps"),
        (X86 + "znver5", ("uint8", "uint8"), "vpdpbusd"),
        (X86 + "skylake-avx512", ("uint8", "int8"), "vpmaddwd"),
        (X86 + "haswell", ("int8", "int8"), "vpmaddwd"),
        (X86 + "haswell", ("int16", "int16"), "vpmaddwd"),
        (X86 + "nehalem", ("int8", "uint8"), "pmaddwd"),
        (X86 + "haswell", ("float16", "float16"), "vcvtph2ps"),
        (ARM + "neoverse-n1", ("int8", "int8"), "sdot"),
        (ARM + "neoverse-n1", ("uint8", "uint8"), "udot"),
        (ARM + "neoverse-n1", ("uint8", "int8"), "udot"),
        (ARM + "neoverse-n2", ("uint8", "int8"), "usdot"),
        (ARM + "neoverse-n2", ("bfloat16", "bfloat16"), "bfdot"),
    ],
)
@pytest.mark.parametrize("k", [64, 37])
def test_instructions(target: str, kinds: tuple[str, str], instruction: str, k: int) -> None:
    func = product(*kinds, m=32, n=64, k=k)
    chosen = tvm.target.Target(target)
    built = tvm.build(tvm.auto_schedule(func, chosen).mod, target=chosen)
    lines = [line.split() for line in built.get_source("asm").splitlines()]
    words = {word for line in lines for word in line[:2]}  # an instruction may have a prefix
    assert instruction in words
    assert not {"vpmulld", "pmulld"} & words


@pytest.mark.parametrize("constant", ["A", "B"])
def test_the_sign_of_a_constant_changes(constant: str) -> None:
    """Of two factors of int8 one becomes uint8: that of a constant takes no time."""
    func = product("int8", "int8", m=64, n=64, k=256, transposed=(False, False))
    words, tile, *_ = choices(func, X86 + "cascadelake", (constant,))
    moved = {"A": "dot products of uint8 and int8", "B": "dot products of int8 and uint8"}
    assert words.winner.rule.name == moved[constant]
    assert moved["B" if constant == "A" else "A"] in {o.rule.name for o in words.rivals}
    assert tile.winner.rule.name == "tile"


@pytest.mark.parametrize("stride", [1, 2])
def test_a_depthwise_convolution_loads_words_that_overlap(stride: int) -> None:
    """Three steps along a row are a word; no copy of the image holds such words."""
    x, w = te.placeholder((1, 8, 34, 34), "uint8", name="x"), te.placeholder((8, 1, 3, 3), "int8", name="w")
    y = topi.nn.depthwise_conv2d_nchw(x, w, stride, 0, 1, "int32")
    target = tvm.target.Target(X86 + "icelake-client")
    sch = tvm.auto_schedule([x, w, y], target)
    asm = tvm.build(sch.mod, target=target).get_source("asm")
    assert "vpdpbusd" in asm and "vpermt2b" in asm
    assert "x_words" not in str(sch.mod)


def test_a_small_image_stays_in_registers() -> None:
    """Rows of 9 bytes and vectors of 7 results: each row is written and read as a whole, nothing waits for memory."""
    x, w = te.placeholder((1, 8, 7, 7), "uint8", name="x"), te.placeholder((8, 1, 3, 3), "int8", name="w")
    y = topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1, "int32")
    z = topi.cast(topi.clip(topi.round(topi.cast(y, "float32") * 0.01) + 128.0, 0, 255), "uint8")
    target = tvm.target.Target(X86 + "znver5")
    asm = tvm.build(tvm.auto_schedule([x, w, z], target).mod, target=target).get_source("asm")
    assert "vpdpbusd" in asm and "rsp)" not in re.sub(r"\b(push|pop|mov|lea|sub|add|and)q.*", "", asm)
    assert "vcmpunordps" not in asm  # a limit of the clip is no NaN
    assert not re.search(r"vpslld|vpextr[bw]", asm)  # words are permuted, rows of 7 stored under a mask
    func = te.create_prim_func([x, w, z])
    want = data(func)
    got = [np.copy(a) for a in want]
    tir.interpret(func, *want)
    tvm.build(tvm.auto_schedule(func, "llvm").mod, target="llvm")(*got)
    np.testing.assert_array_equal(got[-1], want[-1])


@pytest.mark.parametrize("n", [49, 50, 51])
def test_the_last_columns_are_a_vector(n: int) -> None:
    """A vector that has one column left is multiplied as one; LLVM would spread bytes over lanes for scalars."""
    func = product("uint8", "int8", m=28, n=n, k=64, transposed=(False, False))
    target = tvm.target.Target(X86 + "znver5")
    asm = tvm.build(tvm.auto_schedule(func, target).mod, target=target).get_source("asm")
    assert "vpdpbusd" in asm and not re.search("vpmovsxbd|vpdpwssd|imull", asm)
    want = data(func)
    got = [np.copy(a) for a in want]
    tir.interpret(func, *want)
    tvm.build(tvm.auto_schedule(func, "llvm").mod, target="llvm")(*got)
    np.testing.assert_array_equal(got[-1], want[-1])


def test_a_form_is_told_with_its_instruction() -> None:
    func = product("uint8", "int8", m=64, n=64, k=64)
    sch = tvm.auto_schedule(func, X86 + "cascadelake")
    text = str(sch.explanation)
    assert "dot products" in text
    assert "llvm.x86.avx512.vpdpbusd.512" in text


@pytest.mark.parametrize(
    ("func", "target", "why"),
    [
        (product("int8", "int8"), "c", "the target's code generator has no instructions for dot products"),
        (product("float32", "float32"), X86 + "haswell", "does not multiply two elements of 8 or 16 bits"),
        (
            product("int8", "int8"),
            "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64",
            "the processor has no instruction for dot products of uint8 and int8",
        ),
        (product("int16", "int16"), X86 + "cascadelake", "no steps of its sum can be packed into such words"),
    ],
)
def test_refusals(func: Any, target: str, why: str) -> None:
    chosen, sch = tvm.target.Target(target), tir.Schedule(func)
    facts = facts_of(sch, sch.get_block("C"))
    stage = Stage(Stages(sch, func, chosen, Explanation(target), frozenset()), facts, (facts,))
    made = DotProducts("uint8", "int8").match(stage, chosen)
    assert isinstance(made, Refusal) and why in made.why


@pytest.mark.slow
@pytest.mark.parametrize(
    "func",
    [
        product("uint8", "int8", 30, 70, 64),
        product("int8", "int8", 17, 33, 41, (True, False)),
        product("uint8", "uint8", 1, 200, 128, (False, False)),
        product("int16", "int16", 20, 40, 31),
        product("bfloat16", "bfloat16", 20, 40, 32, (False, False)),
        product("float16", "float16", 20, 40, 32),
        convolution("uint8", "int8", 6, 20),
        convolution("int8", "int8", 16, 16, groups=2),
        convolution("uint8", "int8", 3, 20),
        convolution("uint8", "int8", 24, 24, groups=24),
    ],
)
def test_every_row_computes_what_the_program_says(func: Any) -> None:
    """The forms of the first stage, each with the rows that the search would measure first."""
    want = data(func)
    tir.interpret(func, *want)
    sketches = Sketches(task_of(func, tvm.target.Target("llvm")))
    space = sketches.space.first
    for row in space.everything()[:: max(1, len(space.everything()) // 6)]:
        got = [tvm.nd.array(x) for x in data(func)]
        tvm.build(sketches.apply(space.decisions(row)).mod, target="llvm")(*got)
        tolerance = 0 if want[-1].dtype == np.int32 else 1e-4
        np.testing.assert_allclose(got[-1].numpy(), want[-1], rtol=tolerance, atol=tolerance)


def test_a_weight_is_packed_at_compile_time() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (20, 64)).astype("i1"), rng.integers(-128, 128, (64, 48)).astype("i1")
    built = tvm.compile(product("int8", "int8", 20, 48, 64), "llvm", constants={"B": b})
    c = tvm.nd.empty((20, 48), "int32")
    built(tvm.nd.array(a), c)
    np.testing.assert_array_equal(c.numpy(), a.astype("i4") @ b.astype("i4"))


def test_an_epilogue_takes_the_results_from_registers() -> None:
    """What corrects the signs, a bias and a clip are one stage, in the tile."""
    A, B = te.placeholder((64, 64), "int8", name="A"), te.placeholder((64, 64), "int8", name="B")
    bias = te.placeholder((64,), "int32", name="bias")
    out = topi.clip(topi.nn.dense(A, B, bias, out_dtype="int32"), 0, 100)
    sch = tvm.auto_schedule([A, B, bias, out], X86 + "cascadelake")
    stages = [r["fused_after"] for r in sch.explanation.records if r.get("sketch") == "tile"]
    assert stages == ["T_clip"], str(sch.explanation)
