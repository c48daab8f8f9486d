"""The driver: kernels, dependence flags, commands that are too large for an instruction, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.runtime.accelerator import Address, Command
from tilewright.vta.assembler import listing
from tilewright.vta.binary import MICRO_OPS, Relocation
from tilewright.vta.config import Config
from tilewright.vta.driver import encode_commands
from tilewright.vta.errors import InstructionError

CONFIG = Config()


def load(**changes: Any) -> dict[str, Any]:
    return {"memory": "inp", "sram": 0, "dram": Address(0, 0), "rows": 1, "columns": 4, "stride": 4} | changes


def store(**changes: Any) -> dict[str, Any]:
    return load(memory="out") | changes


def text(*commands: Command, config: Config = CONFIG) -> list[str]:
    return listing(encode_commands(commands, config).instructions).splitlines()


def test_kernels_are_kept_once_and_loaded_at_the_start() -> None:
    gemm = Command(2, "gemm", {"acc": 0, "inp": 0, "wgt": 0, "loops": ((4, 1, 1, 0),)})
    code = encode_commands([gemm, gemm, gemm._replace(fields={"acc": 1}), gemm], CONFIG)
    assert listing(code.instructions, code.micro_ops).splitlines() == [
        "load.uop rows=1 columns=2",
        "gemm end=1 outer=1 inner=4 acc_inner=1 inp_inner=1",
        "gemm end=1 outer=1 inner=4 acc_inner=1 inp_inner=1",
        "gemm begin=1 end=2 outer=1 inner=1",
        "gemm end=1 outer=1 inner=4 acc_inner=1 inp_inner=1",
        "finish",
        "uop dst=0 src=0 wgt=0",
        "uop dst=1 src=0 wgt=0",
    ]
    assert code.relocations == (Relocation(0, MICRO_OPS),)


def test_kernels_that_do_not_all_fit_are_loaded_before_their_use() -> None:
    config = Config(log_uop_buff_size=4)  # four micro-ops
    a = Command(2, "gemm", {"acc": 0, "loops": ((2, 1, 1, 1), (2, 5, 3, 1), (3, 1, 2, 7))})
    b = Command(2, "gemm", {"acc": 9})
    c = Command(2, "gemm", {"acc": 0, "loops": ((4, 1, 0, 0), (5, 0, 1, 0), (2, 0, 0, 1))})
    lines = text(a, b, a, c._replace(pops=(1,)), b, a, config=config)
    assert [line for line in lines if line.startswith("load.uop")] == [
        "load.uop rows=1 columns=2",
        "load.uop sram=2 dram=2 rows=1 columns=1",
        "load.uop dram=3 rows=1 columns=2",  # does not fit behind the others: the first kernel is evicted
        "load.uop sram=2 rows=1 columns=2",
    ]


def test_a_reset_writes_each_element_once() -> None:
    gemm = {
        "reset": True,
        "acc": 8,
        "inp": 5,
        "wgt": 5,
        "loops": ((9, 0, 1, 1), (4, 16, 0, 2), (16, 1, 1, 0)),
    }
    assert text(Command(2, "gemm", gemm))[1] == "gemm.reset end=1 outer=1 inner=64 acc_inner=1"


def test_tokens_become_flags() -> None:
    assert text(
        Command(1, "load", load(), (2,), (2,)),
        Command(2, "gemm", {"acc": 0}, (1, 3), (1, 3)),
        Command(3, "store", store(), (2,), (2,)),
    ) == [
        "load.uop rows=1 columns=1",
        "load.inp rows=1 columns=4 pop=next push=next",
        "gemm end=1 outer=1 inner=1 pop=prev,next push=prev,next",
        "store.out rows=1 columns=4 pop=prev push=prev",
        "finish",
    ]


def test_tokens_without_work_go_to_the_neighbours_in_the_queue() -> None:
    assert text(
        Command(3, "store", store()),
        Command(1, "load", load()),
        Command(3, "nop", {}, pushes=(2,)),
        Command(1, "nop", {}, pops=(2,)),
        Command(2, "nop", {}, pops=(3,)),
        Command(1, "load", load()),
    ) == [
        "store.out rows=1 columns=4 push=prev",
        "load.inp rows=1 columns=4",
        "load.inp rows=1 columns=4 pop=next",
        "finish pop=next",
    ]


def test_tokens_that_no_instruction_can_take_get_one() -> None:
    assert text(
        Command(1, "nop", {}, pushes=(2,)),  # nothing before it
        Command(2, "nop", {}, (1,), (1,)),  # passes a token on
        Command(1, "load", load(), (2, 2), (2, 2)),  # more tokens than flags
        Command(3, "nop", {}, pops=(2,)),  # nothing behind it
        Command(1, "load", load(rows=0), pushes=(2,)),  # no work
    ) == [
        "load.inp push=next",
        "load.uop pop=prev push=prev",
        "load.inp pop=next",
        "load.inp rows=1 columns=4 pop=next push=next",
        "load.inp push=next",
        "load.inp push=next",
        "store.out pop=prev",
        "finish",
    ]


def test_contiguous_rows_are_one() -> None:
    assert text(Command(1, "load", load(rows=3)))[0] == "load.inp rows=1 columns=12"
    assert text(Command(1, "load", load(rows=3, stride=5)))[0] == "load.inp rows=3 columns=4 stride=5"
    assert (
        text(Command(1, "load", load(rows=3, pad=(1, 0, 0, 0))))[0]
        == "load.inp rows=3 columns=4 stride=4 top=1"
    )


def test_transfers_that_do_not_fit_an_instruction() -> None:
    wide = Command(1, "load", load(rows=2, columns=3, stride=100_000, pad=(1, 0, 0, 1)), (2,), (2,))
    code = encode_commands([wide], CONFIG)
    assert listing(code.instructions).splitlines() == [
        "load.inp columns=4 top=1 pop=next",
        "load.inp sram=4 rows=1 columns=3",
        "load.inp sram=7 columns=1 top=1",
        "load.inp sram=8 dram=100000 rows=1 columns=3",
        "load.inp sram=11 columns=1 top=1 push=next",
        "finish",
    ]
    assert code.relocations == (Relocation(1, 0), Relocation(3, 0))
    assert text(Command(1, "load", load(pad=(0, 0, 20, 0))))[:2] == [
        "load.inp columns=20 top=1",
        "load.inp sram=20 rows=1 columns=4",
    ]
    assert text(Command(1, "load", load(rows=2, stride=-4, dram=Address(0, 64))))[:2] == [
        "load.inp dram=4 rows=1 columns=4",
        "load.inp sram=4 rows=1 columns=4",
    ]
    assert text(Command(1, "load", load(rows=0, pad=(1, 1, 1, 1))))[0] == "load.inp columns=12 top=1"


def test_loops_that_do_not_fit_an_instruction() -> None:
    lines = text(Command(2, "gemm", {"acc": 0, "loops": ((20_000, 0, 0, 0),)}, (1,), (3,)))
    assert lines[1:] == [
        "gemm end=1 outer=1 inner=16383 pop=prev",
        "gemm end=1 outer=1 inner=3617 push=next",
        "finish",
    ]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Command(4, "nop", {}), "unknown engine 4; the chip has 1 load, 2 compute and 3 store"),
        (
            Command(2, "gem", {}),
            "unknown command 'gem'; did you mean gemm? Known are: alu, gemm, load, nop, store",
        ),
        (Command(2, "alu", {"op": "add", "dst": 0}), "the field 'src' is missing"),
        (
            Command(2, "gemm", {"acc": 0, "loop": ()}),
            "unknown field 'loop'; did you mean loops? Known are: acc, inp, loops, reset, wgt",
        ),
        (Command(2, "load", load()), "this is work of engine 1 (load)"),
        (
            Command(1, "load", load(memory="out")),
            "load has no memory 'out'. Known are: acc, acc8, inp, wgt",
        ),
        (Command(3, "store", store(memory="wgt")), "store has no memory 'wgt'. Known are: acc, out"),
        (Command(1, "load", load(rows=-1)), "rows=-1 is negative"),
        (
            Command(1, "load", load(pad=(1, 1))),
            "pad=(1, 1): four numbers are expected: top, bottom, left, right",
        ),
        (Command(1, "load", load(dram=64)), "dram=64: an Address is expected"),
        (
            Command(1, "load", load(memory="wgt", dram=Address(1, 128))),
            "dram=argument 1 + 128 is not a multiple of an element of wgt, which has 256 bytes; change the layout of the array, "
            "so that the transfer begins with an element",
        ),
        (
            Command(1, "load", load(sram=2000, columns=100)),
            "elements 2000 to 2099 of inp are needed, and the buffer has 2048; use smaller tiles",
        ),
        (
            Command(1, "load", load(dram=Address(0, 1 << 40))),
            "dram=argument 0 + 1099511627776: the offset does not fit the field `dram` of an instruction",
        ),
        (
            Command(2, "gemm", {"acc": 0, "inp": 3, "loops": ((5, 0, -1, 0),)}),
            "inp: elements -1 to 3 of inp are needed, and the buffer has 2048; use smaller tiles",
        ),
        (
            Command(2, "alu", {"op": "add", "dst": 0, "src": 2000, "loops": ((50, 1, 1),)}),
            "src: elements 2000 to 2049 of acc are needed, and the buffer has 2048; use smaller tiles",
        ),
        (
            Command(2, "alu", {"op": "sub", "dst": 0, "src": 0}),
            "unknown operation 'sub'. Known are: add, max, min, mul, shr",
        ),
        (
            Command(2, "alu", {"op": "add", "imm": 40000, "dst": 0, "src": 0}),
            "imm=40000 does not fit an instruction, which holds -32768 to 32767; load the number into acc and give its index "
            "as src",
        ),
        (
            Command(2, "alu", {"op": "add", "dst": 0, "src": 0, "loops": ((3, 1),)}),
            "loop (3, 1): an extent and 2 steps are expected",
        ),
        (
            Command(2, "alu", {"op": "add", "dst": 0, "src": 0, "loops": ((-3, 1, 1),)}),
            "extent=-3 is negative",
        ),
        (
            Command(1, "load", load(), pops=(3,)),
            "load has no token queue from engine 3: tokens go between load (1) and compute (2), and between compute and "
            "store (3); pass it on through compute",
        ),
        (
            Command(1, "nop", {}, pops=(3,)),
            "load has no token queue from engine 3: tokens go between load (1) and compute (2), and between compute and "
            "store (3); pass it on through compute",
        ),
        (
            Command(3, "nop", {}, (2,), (1,)),
            "store has no token queue to engine 1: tokens go between load (1) and compute (2), and between compute and "
            "store (3); pass it on through compute",
        ),
    ],
)
def test_refusals_name_the_command(command: Command, why: str) -> None:
    with pytest.raises(InstructionError) as caught:
        encode_commands([Command(1, "load", load()), command], CONFIG)
    assert str(caught.value) == f"command 1 ({command}): {why}"
