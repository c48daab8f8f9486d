"""The commands of a lowered program, with their tokens."""

from __future__ import annotations

from collections import Counter

import pytest
from tiny_chip import COMPUTE, STREAMING, TINY, lowered, matmul, vector_add

from tilewright.backends._accelerator import commands_of
from tilewright.ir.errors import BuildError
from tilewright.script import tir as T
from tilewright.tir.script.function import from_source
from tilewright.tir.transform.coproc_sync import coproc_sync


def issued(func, chip=TINY):
    return commands_of(func, chip, lambda i: (i.name, {"extents": i.extents}))


def test_a_product(expect):
    program, args = matmul(m=1, n=1, k=2)
    expect(
        "\n".join(map(str, issued(lowered(program, args)))),
        """
        engine 2: gemm extents=()
        engine 1: load extents=()
        engine 1: load extents=() pushes=(2,)
        engine 2: gemm extents=() pops=(1,) pushes=(1,)
        engine 1: load extents=() pops=(2,)
        engine 1: load extents=() pushes=(2,)
        engine 2: gemm extents=() pops=(1,)
        engine 2: alu extents=()
        engine 2: alu extents=()
        engine 2: alu extents=() pushes=(3,)
        engine 3: store extents=() pops=(2,)
        """,
    )


@pytest.mark.parametrize("chip", [TINY, STREAMING], ids=lambda c: c.name)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_token_is_pushed_before_it_is_popped(chip, threads):
    program, args = vector_add(threads=threads)
    held: Counter[tuple[int, int]] = Counter()
    made = issued(lowered(program, args, chip), chip)
    for c in made:
        held.subtract((p, c.engine) for p in c.pops)
        assert min(held.values(), default=0) >= 0
        held.update((c.engine, p) for p in c.pushes)
    assert not any(held.values())
    passed = [c for c in made if c.name == "nop"]
    assert all(c.engine == COMPUTE and c.pops and c.pushes for c in passed)
    assert bool(passed) == (chip is STREAMING)  # store -> load, over the engine between them


def test_a_command_without_an_instruction(expect):
    @T.prim_func(private=True)
    def bare(A: T.Buffer((8,), "int32")):
        T.attr(0, "coproc_scope", 1)
        A[0] = 1

    with pytest.raises(BuildError) as caught:
        issued(coproc_sync(bare, TINY))
    expect(
        str(caught.value),
        """
        tiny: a command of engine load has no instruction
          | A[0] = 1
          hint: tensorize it with an intrinsic of the chip, or mark it for its DMA or vector unit
        """,
    )


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (
            "i * 4 + 2",
            "tiny: an operand in local.tiny_acc does not start at an element of 4 lanes: offset 2, strides [4]\n"
            "  hint: the intrinsic takes whole elements; tile so that tiles are",
        ),
        (
            "i * 6",
            "tiny: an operand in local.tiny_acc does not start at an element of 4 lanes: offset 0, strides [6]\n"
            "  hint: the intrinsic takes whole elements; tile so that tiles are",
        ),
        ("i // 2 * 4", "tiny: the address `i // 2 * 4` is not linear in the loops of its command"),
    ],
)
def test_operands_that_a_chip_cannot_address(offset, text):
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((16,), "int32")):
    acc = T.allocate([64], "int32", "local.tiny_acc")
    T.attr(0, "coproc_scope", 2)
    for i in range(4):
        T.attr(0, "instruction", T.call_extern("int32", "alu", T.tvm_access_ptr(T.type_annotation("int32"), acc, {offset}, 4, 2)))
        A[i] = i
""")
    with pytest.raises(BuildError) as caught:
        commands_of(func, TINY, lambda issued: (issued.name, {}))
    assert str(caught.value) == text
