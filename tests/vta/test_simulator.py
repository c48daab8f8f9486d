"""The simulator: random programs against NumPy, times computed by hand, statistics and refusals."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from vta_reference import Reference

from tilewright.runtime.accelerator import Address, Command
from tilewright.runtime.engines import DeadlockError
from tilewright.vta import isa
from tilewright.vta.assembler import assemble
from tilewright.vta.binary import Code, Relocation
from tilewright.vta.config import Config
from tilewright.vta.device import Dram
from tilewright.vta.driver import encode_commands
from tilewright.vta.errors import SimulatorError
from tilewright.vta.simulator import Report, Simulator, Statistics

pytestmark = pytest.mark.slow  # the loops of a configuration are compiled

# Small buffers, so that programs reach their ends and kernels are evicted.
SMALL = Config(
    log_batch=1, log_block_in=2, log_block_out=3, log_uop_buff_size=5, log_inp_buff_size=7, log_wgt_buff_size=9,
    log_acc_buff_size=11,
)  # fmt: skip
WIDE = Config(
    log_inp_width=4, log_inp_buff_size=10, log_uop_buff_size=7, log_acc_buff_size=11, log_wgt_buff_size=13
)


@lru_cache(None)
def simulator(config: Config) -> Simulator:
    return Simulator(config, Dram(1 << 22))


def run(
    config: Config, code: Code, arrays: list[np.ndarray[Any, Any]], execute: bool = True
) -> tuple[Report, list[np.ndarray[Any, Any]]]:
    sim = simulator(config)
    sim.chip.clear()
    addresses = [sim.dram.allocate(a.nbytes) for a in arrays]
    try:
        for address, array in zip(addresses, arrays):
            sim.chip.write(address, array.tobytes())
        report = sim.run(code, addresses, execute)
        return report, [sim.dram.bytes[a : a + x.nbytes].copy() for a, x in zip(addresses, arrays)]
    finally:
        for address in addresses:
            sim.dram.release(address)


@st.composite
def loops(draw: st.DrawFn, steps: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        (draw(st.integers(1, 3)), *(draw(st.integers(0, most)) for most in steps))
        for _ in range(draw(st.integers(0, 4)))
    )


@st.composite
def commands(draw: st.DrawFn, config: Config) -> list[Command]:
    """Programs without tokens: they are in program order where one engine waits for the other, see `sequential`."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["load", "store", "gemm", "gemm", "alu", "alu"]))
        if kind in ("load", "store"):
            names = ("inp", "wgt", "acc", "acc8") if kind == "load" else ("out", "acc")
            name = draw(st.sampled_from(names))
            memory = config.memories[name]
            rows, columns = draw(st.integers(0, 2)), draw(st.integers(0, 3))
            pad = tuple(draw(st.integers(0, 1)) for _ in range(4)) if kind == "load" else ()
            fields: dict[str, Any] = {
                "memory": name,
                "sram": draw(st.integers(0, memory.depth - 20)) if memory.depth > 20 else 0,
                "dram": Address(draw(st.integers(0, 1)), draw(st.integers(0, 3)) * memory.element_bytes),
                "rows": rows,
                "columns": columns,
                "stride": draw(st.integers(columns, 4)),
            }
            if kind == "load":
                fields["pad"] = pad
                if memory.depth <= 20:
                    fields |= {"rows": min(rows, 1), "pad": (0, 0, 0, 0)}
            engine = 3 if kind == "store" else 1 if name in ("inp", "wgt") else 2
            found.append(Command(engine, kind, fields))
        elif kind == "gemm":
            fields = {
                "reset": draw(st.booleans()),
                "acc": draw(st.integers(0, 3)),
                "inp": draw(st.integers(0, 1)),
            }
            found.append(Command(2, kind, fields | {"wgt": 0, "loops": draw(loops((2, 1, 1)))}))
        else:
            fields = {
                "op": draw(st.sampled_from(["min", "max", "add", "shr", "mul"])),
                "imm": draw(st.none() | st.integers(-40, 40) | st.integers(-32768, 32767)),
                "dst": draw(st.integers(0, 4)),
                "src": draw(st.integers(0, 4) | st.just(0)),
                "loops": draw(loops((2, 2))),
            }
            found.append(Command(2, kind, fields))
    return found


def sequential(found: list[Command]) -> list[Command]:
    """The commands with tokens that make each wait for the one before it, through compute."""
    made: list[Command] = []
    for at, command in enumerate(found):
        made.append(command)
        after = found[at + 1].engine if at + 1 < len(found) else command.engine
        path = [command.engine, after] if abs(command.engine - after) < 2 else [command.engine, 2, after]
        for source, target in zip(path, path[1:]):
            if source != target:
                made += [
                    Command(source, "nop", {}, pushes=(target,)),
                    Command(target, "nop", {}, pops=(source,)),
                ]
    return made


@pytest.mark.parametrize("config", [SMALL, WIDE])
@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(st.data())
def test_programs_compute_what_commands_mean(config: Config, data: st.DataObject) -> None:
    program = data.draw(commands(config))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    arrays = [
        rng.integers(-128, 128, 64 * 1024).astype("int8"),
        rng.integers(-128, 128, 64 * 1024).astype("int8"),
    ]
    code = encode_commands(sequential(program), config)
    encoded = isa.decode_all(isa.encode_all(code.instructions, config), config)
    assert tuple(encoded) == code.instructions
    report, found = run(config, code, arrays)
    expected = Reference(config, arrays).run(program)
    for a, b in zip(found, expected):
        np.testing.assert_array_equal(a, b)
    again, _ = run(config, code, arrays)
    assert again == report
    only_cycles, untouched = run(config, code, arrays, execute=False)
    assert only_cycles == report
    assert all((a == b.view(np.uint8)).all() for a, b in zip(untouched, arrays))
    assert report.trace.tokens_left == {}


TINY = Config(
    log_uop_buff_size=6, log_inp_buff_size=9, log_wgt_buff_size=12, log_acc_buff_size=11, dram_latency=10
)


def product_of(rows: int) -> list[Command]:
    """out[i] = inp[i] @ wgt.T for `rows` elements, each a row of 16 numbers."""
    return [
        Command(
            1,
            "load",
            {"memory": "inp", "sram": 0, "dram": Address(0, 0), "rows": 1, "columns": rows, "stride": 0},
        ),
        Command(
            1,
            "load",
            {"memory": "wgt", "sram": 0, "dram": Address(1, 0), "rows": 1, "columns": 1, "stride": 0},
            pushes=(2,),
        ),
        Command(2, "gemm", {"reset": True, "acc": 0, "loops": ((rows, 1, 0, 0),)}),
        Command(2, "gemm", {"acc": 0, "inp": 0, "wgt": 0, "loops": ((rows, 1, 1, 0),)}, pops=(1,)),
        Command(2, "alu", {"op": "shr", "imm": 4, "dst": 0, "src": 0, "loops": ((rows, 1, 1),)}, pushes=(3,)),
        Command(
            3,
            "store",
            {"memory": "out", "sram": 0, "dram": Address(2, 0), "rows": 1, "columns": rows, "stride": 0},
            pops=(2,),
        ),
    ]


def test_times_computed_by_hand() -> None:
    rng = np.random.default_rng(1)
    inp, wgt = (rng.integers(-128, 128, shape).astype("int8") for shape in ((8, 16), (16, 16)))
    report, (_, _, out) = run(
        TINY, encode_commands(product_of(8), TINY), [inp, wgt, np.zeros((8, 16), "int8")]
    )
    expected = (inp.astype("int32") @ wgt.astype("int32").T >> 4).astype("int8")
    np.testing.assert_array_equal(out.view("int8").reshape(8, 16), expected)
    # uop: latency 10, a row 1, 4 bytes 1. inp: its 128 bytes could come in cycle 12, and the port is free in 13; a row 1
    # and 16 cycles of data. wgt: latency 10, a row 1, 256 bytes in 32 cycles.
    assert [(s.label, s.start, s.end) for s in sorted(report.timeline, key=lambda s: s.instruction)] == [
        ("load.uop", 1, 13),
        ("load.inp", 2, 30),
        ("load.wgt", 30, 73),
        ("gemm.reset", 13, 25),
        ("gemm", 73, 85),
        ("alu.shr.imm", 85, 97),
        ("store.out", 97, 124),
        ("finish", 97, 98),
    ]
    assert report.cycles == 124
    assert report.statistics.table() == {
        "inp_load_nbytes": 128,
        "wgt_load_nbytes": 256,
        "acc_load_nbytes": 0,
        "uop_load_nbytes": 4,
        "out_store_nbytes": 128,
        "gemm_counter": 8,
        "alu_counter": 8,
        "cycles": 124,
        "instructions": 8,
        "dram_port_cycles": 17 + 33 + 2 + 17,
        "gemm_utilisation": 8 / 124,
        "utilisation": {"load": 70 / 124, "compute": 49 / 124, "store": 27 / 124},
        "busy_cycles": {"load": 70, "compute": 49, "store": 27},
        "stall_cycles": {
            "load": {"empty queue": 53, "DRAM port": 1},
            "compute": {"empty queue": 27, "token from load": 48},
            "store": {"empty queue": 7, "token from compute": 90},
        },
    }


def test_cycles_are_counted_without_data() -> None:
    code = encode_commands(product_of(8), TINY)
    assert simulator(TINY).run(code, execute=False).cycles == 124


def test_statistics_add_up() -> None:
    report, _ = run(TINY, encode_commands(product_of(4), TINY), [np.zeros(1024, "int8")] * 3)
    one = report.statistics
    two = (one + one).table()
    assert two["cycles"] == 2 * one.cycles and two["gemm_counter"] == 8
    assert two["stall_cycles"]["store"]["token from compute"] == 2 * one.stalls["store"]["token from compute"]
    assert Statistics() + one == one


def test_two_operands_take_two_reads_of_acc() -> None:
    code = encode_commands(
        [Command(2, "alu", {"op": "add", "dst": 0, "src": 8, "loops": ((8, 1, 1),)})], TINY
    )
    (one,) = [s for s in run(TINY, code, [])[0].timeline if s.label == "alu.add"]
    ports = Config.of({**TINY.keys(), "ACC_READ_PORTS": 2})
    (two,) = [s for s in run(ports, code, [])[0].timeline if s.label == "alu.add"]
    assert (one.end - one.start, two.end - two.start) == (8 * 2 + 4, 8 + 4)


def test_zeros_take_a_cycle_each() -> None:
    fields = {
        "memory": "inp",
        "sram": 0,
        "dram": Address(0, 0),
        "rows": 2,
        "columns": 2,
        "stride": 2,
        "pad": (1, 0, 1, 1),
    }
    code = encode_commands([Command(1, "load", fields)], TINY)
    report, _ = run(TINY, code, [np.ones(64, "int8")])
    assert [(s.start, s.end) for s in report.timeline if s.label == "load.inp"] == [(1, 1 + 10 + 2 + 8 + 8)]
    inp = simulator(TINY).chip.buffers["inp"]
    assert inp[:12].any(axis=(1, 2)).tolist() == [False] * 5 + [True] * 2 + [False] * 2 + [True] * 2 + [False]


def refusal(text: str, relocations: tuple[Relocation, ...] = (), arrays: int = 1) -> str:
    instructions, micro_ops = assemble(text, TINY)
    with pytest.raises(SimulatorError) as caught:
        run(TINY, Code(tuple(instructions), tuple(micro_ops), relocations), [np.zeros(64, "int8")] * arrays)
    return str(caught.value)


def test_refusals_name_the_instruction() -> None:
    assert (
        refusal("gemm") == "the program ends with instruction 0 (gemm); its last instruction must be FINISH"
    )
    assert refusal("") == "the program ends with nothing; its last instruction must be FINISH"
    assert refusal("finish\nfinish") == (
        "instruction 0 (finish): FINISH must be the last instruction, and others are behind it"
    )
    assert refusal("load.inp rows=1 columns=33 sram=5\nfinish") == (
        "instruction 0 (load.inp sram=5 rows=1 columns=33): it writes elements 5 to 37, and inp has 32"
    )
    assert refusal("store.acc rows=3 columns=11\nfinish") == (
        "instruction 0 (store.acc rows=3 columns=11): it reads elements 0 to 32, and acc has 32"
    )
    assert refusal("load.inp dram=1 rows=1 columns=1\nfinish") == (
        "instruction 0 (load.inp dram=1 rows=1 columns=1): row 0 is at DRAM addresses 0x10 to 0x20, which is not within one "
        "allocation; allocated are: 0x1000 to 0x1040"
    )
    assert refusal("load.inp rows=3 columns=1 stride=2\nfinish", (Relocation(0, 0),)) == (
        "instruction 0 (load.inp rows=3 columns=1 stride=2): row 2 is at DRAM addresses 0x1040 to 0x1050, which is not "
        "within one allocation; allocated are: 0x1000 to 0x1040"
    )
    assert refusal("load.inp rows=1 columns=1\nfinish", (Relocation(0, 3),)) == (
        "instruction 0 (load.inp rows=1 columns=1): it addresses argument 3, and 1 are given"
    )
    assert refusal("gemm end=17\nfinish") == (
        "instruction 0 (gemm end=17): it runs micro-ops 0 to 16, and the buffer has 16"
    )
    assert refusal("gemm end=1 outer=5 inner=1 acc_outer=8\nfinish") == (
        "instruction 0 (gemm end=1 outer=5 inner=1 acc_outer=8): it reaches element 32 of acc, which has 32"
    )
    assert refusal("alu.add end=1 outer=1 inner=3 src_inner=16\nfinish") == (
        "instruction 0 (alu.add end=1 outer=1 inner=3 src_inner=16): it reaches element 32 of acc, which has 32"
    )
    assert refusal("load.out rows=1 columns=1\nfinish") == (
        "instruction 0 (load.out rows=1 columns=1): memory 4 (out) cannot be accessed this way"
    )
    assert refusal("load.inp pop=prev\nfinish") == (
        "instruction 0 (load.inp pop=prev): load has no neighbour on that side to exchange tokens with"
    )


def test_an_argument_that_is_no_multiple_of_an_element() -> None:
    (load, finish), _ = assemble("load.wgt rows=1 columns=1\nfinish", TINY)
    with pytest.raises(SimulatorError) as caught:
        simulator(TINY).run(Code((load, finish), (), (Relocation(0, 0),)), [0x1010])
    assert str(caught.value) == (
        "instruction 0 (load.wgt rows=1 columns=1): argument 0 is at address 0x1010, which is not a multiple of an element of "
        "256 bytes; use an array of its own instead of a part of one"
    )


def test_a_program_without_its_token_is_a_deadlock() -> None:
    program = [c._replace(pushes=()) if c.engine == 1 else c for c in product_of(2)]
    with pytest.raises(DeadlockError) as caught:
        run(TINY, encode_commands(program, TINY), [np.zeros(1024, "int8")] * 3)
    assert str(caught.value).splitlines()[:4] == [
        "deadlock in cycle 61: no engine can continue",
        "  load: idle since cycle 61, its queue is empty",
        "  compute: instruction 4 (gemm) waits for a token from load since cycle 19",
        "  store: instruction 6 (store.out) waits for a token from compute since cycle 7",
    ]
    assert simulator(TINY).dram.allocated == 0
