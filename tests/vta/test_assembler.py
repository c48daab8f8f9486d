"""The assembler and the disassembler are inverse, and errors name the line."""

from __future__ import annotations

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.vta import isa
from tilewright.vta.assembler import assemble, disassemble, listing
from tilewright.vta.config import Config
from tilewright.vta.errors import AssemblyError
from tilewright.vta.layout import ALU_OPS, MEMORIES

CONFIG = Config()
_CODES = {"memory": list(MEMORIES.values()), "op": list(ALU_OPS.values())}


@st.composite
def instructions(draw: st.DrawFn) -> isa.Instruction:
    kind = draw(st.sampled_from(sorted(isa.CLASSES)))
    return isa.CLASSES[kind](
        **{
            f.name: draw(st.sampled_from(_CODES[f.name]) if f.name in _CODES else st.integers(f.low, f.high))
            for f in CONFIG.layouts[kind]
            if f.name != "opcode"
        }
    )


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.lists(instructions(), max_size=5), st.lists(st.tuples(*[st.integers(0, 1023)] * 3), max_size=5))
def test_text_is_read_back_as_it_was(
    made: list[isa.Instruction], triples: list[tuple[int, int, int]]
) -> None:
    micro_ops = [isa.MicroOp(*t) for t in triples]
    text = listing(made, micro_ops)
    assert assemble(text, CONFIG) == (made, micro_ops)
    assert listing(*assemble(text, CONFIG)) == text


def test_the_text_of_instructions() -> None:
    load = isa.Load(
        memory=MEMORIES["inp"], dram=64, rows=4, columns=16, stride=64, top=1, pop_next=1, push_next=1
    )
    assert disassemble(load) == "load.inp dram=64 rows=4 columns=16 stride=64 top=1 pop=next push=next"
    alu = isa.Alu(op=ALU_OPS["shr"], use_imm=1, imm=-3, end=1, outer=1, inner=2, pop_prev=1, pop_next=1)
    assert disassemble(alu) == "alu.shr.imm end=1 outer=1 inner=2 imm=-3 pop=prev,next"
    assert disassemble(isa.Gemm(reset=1, push_prev=1)) == "gemm.reset push=prev"
    assert disassemble(isa.Finish()) == "finish"
    assert disassemble(isa.Load(memory=7)) == "load.memory7"


def test_comments_and_blank_lines() -> None:
    text = "# a program\n\n  load.wgt rows=0x10   # rows\nuop src=3\nfinish\n"
    assert assemble(text, CONFIG) == ([isa.Load(memory=1, rows=16), isa.Finish()], [isa.MicroOp(0, 3, 0)])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "laod.inp rows=1",
            "unknown instruction 'laod.inp'; did you mean load.inp or load.uop? Known are: ",
        ),
        ("load.inp row=1", "unknown field 'row'; did you mean rows? Known are: "),
        ("load.inp rows", "'rows' is not a field; write name=value, such as sram=1\n"),
        ("load.inp rows=x", "'rows=x': a whole number is expected, such as 16 or 0x10\n"),
        ("load.inp rows=1 rows=2", "'rows' is given twice\n"),
        (
            "load.inp pop=left",
            "'pop=left': the neighbours of an engine are prev and next; write pop=prev,next\n",
        ),
        (
            "load.inp rows=65536",
            "LOAD: rows=65536 does not fit its field of 16 bits, which holds 0 to 65535: rows that are transferred; 0 "
            "transfers nothing\n",
        ),
        (
            "uop dst=4000",
            "micro-op: dst=4000 does not fit its field of 11 bits, which holds 0 to 2047: the element of acc that is "
            "written\n",
        ),
        ("uop pop=prev", "unknown field 'pop'. Known are: "),
    ],
)
def test_errors_name_the_line(line: str, text: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(f"finish\n{line}\n", CONFIG, "code.txt")
    assert str(caught.value).startswith(f"code.txt, line 2: {text}")
    assert str(caught.value).endswith(f"\n  | {line}")
