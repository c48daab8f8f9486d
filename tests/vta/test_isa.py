"""The instruction set: encoding and decoding are inverse, and values that do not fit are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.vta import isa
from tilewright.vta.config import TIMING, Config
from tilewright.vta.errors import InstructionError
from tilewright.vta.layout import ALU_OPS, INSTRUCTION_BITS, MEMORIES, MICRO_OP_BITS, table, width_of

CONFIGS = (Config(), Config(log_batch=1, log_block_in=3, log_inp_buff_size=13, log_wgt_buff_size=15))
_CODES = {"memory": list(MEMORIES.values()), "op": list(ALU_OPS.values())}


@st.composite
def instructions(draw: st.DrawFn, config: Config) -> isa.Instruction:
    kind = draw(st.sampled_from(sorted(isa.CLASSES)))
    values = {
        f.name: draw(st.sampled_from(_CODES[f.name]) if f.name in _CODES else st.integers(f.low, f.high))
        for f in config.layouts[kind]
        if f.name != "opcode"
    }
    return isa.CLASSES[kind](**values)


def test_the_page_has_the_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "vta_isa.md").read_text(encoding="utf-8")
    rows = [f"| `{name}` | {key.default} | {key.meaning} |" for name, key in TIMING.items()]
    tables = [table(name, fields) for name, fields in Config().layouts.items()]
    missing = [text for text in (*tables, *rows) if text not in page]
    assert not missing, "docs/vta_isa.md lacks:\n" + "\n".join(missing)


@pytest.mark.parametrize("config", CONFIGS)
def test_layouts_fit(config: Config) -> None:
    for name, fields in config.layouts.items():
        assert width_of(fields) <= (MICRO_OP_BITS if name == "micro-op" else INSTRUCTION_BITS)


@pytest.mark.slow
@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(st.data())
def test_instructions_are_decoded_as_they_were_encoded(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from(CONFIGS))
    made = data.draw(st.lists(instructions(config), max_size=4))
    code = isa.encode_all(made, config)
    assert len(code) == 16 * len(made)
    assert isa.decode_all(code, config) == made


@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2047), st.integers(0, 2047), st.integers(0, 1023))))
def test_micro_ops_are_decoded_as_they_were_encoded(values: list[tuple[int, int, int]]) -> None:
    made = [isa.MicroOp(*v) for v in values]
    code = isa.encode_micro_ops(made, CONFIGS[0])
    assert code == b"".join(isa.encode_micro_op(u, CONFIGS[0]) for u in made)
    assert isa.decode_micro_ops(code, CONFIGS[0]) == made


def test_the_pictures_show_the_fields() -> None:
    for name, fields in Config().layouts.items():
        text = (isa.MicroOp if name == "micro-op" else isa.CLASSES[name]).__doc__
        shown = [(word, int(bits)) for word, bits in re.findall(r"(\w+):(\d+)│", text or "")]
        head = [("opcode", 3), ("flags", 4)] if name != "micro-op" else []
        assert shown == head + [(f.name, f.width) for f in fields if f.name not in ("opcode", *isa.FLAGS)]


def test_the_bytes_of_an_instruction() -> None:
    load = isa.Load(
        pop_next=1, push_next=1, memory=MEMORIES["inp"], sram=3, dram=0x1234, rows=2, columns=5, stride=9
    )
    word = int.from_bytes(isa.encode(load, Config()), "little")
    expected = 0b1010_000 | 2 << 7 | 3 << 10 | 0x1234 << 23 | 2 << 55 | 5 << 71 | 9 << 87
    assert word == expected


def test_engines_and_tokens() -> None:
    assert isa.Load(memory=MEMORIES["wgt"], push_next=1).pushes == (2,)
    assert isa.Load(memory=MEMORIES["acc"], pop_prev=1, pop_next=1).pops == (1, 3)
    assert isa.Store(pop_prev=1).pops == (2,)
    assert isa.Gemm(push_prev=1, push_next=1).pushes == (1, 3)


def refusal(call: object) -> str:
    with pytest.raises(InstructionError) as caught:
        call()  # type: ignore[operator]
    return str(caught.value)


def test_values_that_do_not_fit() -> None:
    config = Config()
    assert refusal(lambda: isa.encode(isa.Load(rows=65536), config)) == (
        "LOAD: rows=65536 does not fit its field of 16 bits, which holds 0 to 65535: rows that are transferred; 0 "
        "transfers nothing"
    )
    assert refusal(lambda: isa.encode(isa.Alu(imm=-32769), config)) == (
        "ALU: imm=-32769 does not fit its field of 16 bits, which holds -32768 to 32767: the second operand, a signed "
        "number"
    )
    assert refusal(lambda: isa.encode_micro_ops([isa.MicroOp(0, 0, 1024)], config)) == (
        "micro-op: wgt=1024 does not fit its field of 10 bits, which holds 0 to 1023: the element of wgt that is read "
        "(GEMM)"
    )


def test_bytes_that_are_no_instruction() -> None:
    config = Config()
    assert refusal(lambda: isa.decode_all(bytes([7, *[0] * 15]), config)) == (
        "instruction 0: opcode 7 is reserved (bytes 07000000000000000000000000000000); the chip has 0 LOAD, 1 STORE, 2 "
        "GEMM, 3 FINISH, 4 ALU"
    )
    finish = isa.encode(isa.Finish(), config)
    assert refusal(lambda: isa.decode_all(finish + finish[:-1] + b"\1", config)) == (
        "instruction 1: FINISH: bits are set that belong to no field; the instruction is damaged"
    )
    assert refusal(lambda: isa.decode_all(finish[:7], config)) == (
        "7 bytes are not a whole number of instructions of 16 bytes; the code is truncated"
    )
    assert refusal(lambda: isa.decode_micro_ops(b"123", config)) == (
        "3 bytes are not a whole number of micro-ops of 4 bytes; the code is truncated"
    )
    load = isa.encode(isa.Load(memory=7), config)
    assert refusal(lambda: isa.decode(load, config)) == "instruction: LOAD of memory 7, which is reserved"
    alu = isa.encode(isa.Alu(op=6), config)
    assert refusal(lambda: isa.decode(alu, config)) == "instruction: ALU with operation 6, which is reserved"


def test_the_table_of_fields() -> None:
    assert table("micro-op", Config().layouts["micro-op"]) == (
        "| MICRO-OP bits | field | meaning |\n"
        "|---|---|---|\n"
        "| 0–10 | `dst` | the element of acc that is written |\n"
        "| 11–21 | `src` | the element of inp (GEMM) or of acc (ALU) that is read |\n"
        "| 22–31 | `wgt` | the element of wgt that is read (GEMM) |"
    )
