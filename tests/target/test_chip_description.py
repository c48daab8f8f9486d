"""Descriptions of chips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tiny_chip import ACC, COMPUTE, INP, LOAD, STORE, TINY, WGT

from tilewright.ir.errors import TargetError
from tilewright.target.accelerator import DRAM, Accelerator, Engine, Scope, Transfer, VectorUnit


def refusal(**changes: Any) -> str:
    with pytest.raises(TargetError) as caught:
        replace(TINY, **changes)
    return str(caught.value)


def test_scopes_count_elements():
    assert TINY.scope(INP).element_bytes == 4
    assert TINY.scope(INP).elements == 64
    assert TINY.scope(WGT).element_bytes == 16
    assert TINY.scope(ACC).element_bytes == 16
    assert TINY.scope(ACC).elements == 64
    assert TINY.scope("shared") is None
    assert Scope("s", "s", 8, "bool", 2).element_bytes == 8  # a type without a width in its name has 32 bits


def test_lookups():
    assert TINY.engine(COMPUTE) == Engine("compute", COMPUTE)
    assert TINY.transfer(DRAM, INP).engine == LOAD
    assert TINY.transfer(ACC, DRAM).engine == STORE
    assert TINY.transfer(INP, DRAM) is None
    assert TINY.unit(ACC).operations["shift_right"] == "shr"
    assert TINY.unit(INP) is None


def test_an_engine_that_is_not_there(expect):
    with pytest.raises(TargetError) as caught:
        TINY.engine(7)
    expect(str(caught.value), """tiny has no engine 7; its engines are 1 (load), 2 (compute), 3 (store)""")


def test_descriptions_that_contradict_themselves(expect):
    expect(
        refusal(scopes=(Scope(INP, "inp", 3, "int8", 4),)),
        """
        tiny: scope local.tiny_inp has 3 bytes, less than one element of 4; enlarge the memory or use fewer lanes
        """,
    )
    expect(
        refusal(tokens=frozenset({(1, 4)})),
        """
        tiny: tokens from engine 1 to 4, which are not two of its engines
        """,
    )
    expect(
        refusal(tokens=frozenset({(2, 2)})),
        """
        tiny: tokens from engine 2 to 2, which are not two of its engines
        """,
    )
    expect(
        refusal(transfers=(Transfer("load", 9, DRAM, INP),)),
        """
        tiny has no engine 9; its engines are 1 (load), 2 (compute), 3 (store)
        """,
    )
    expect(
        refusal(transfers=(Transfer("load", LOAD, "local.other", INP),)),
        """
        tiny: instruction load uses the scope local.other, which the chip does not have
        """,
    )
    expect(
        refusal(vector_units=(VectorUnit("alu", COMPUTE, "local.other", {}),)),
        """
        tiny: instruction alu uses the scope local.other, which the chip does not have
        """,
    )


def test_a_chip_without_vector_units_or_tokens():
    chip = Accelerator(
        name="copier",
        scopes=(Scope("local.s", "s", 64, "int8", 1),),
        engines=(Engine("dma", 0),),
        tokens=frozenset(),
        transfers=(Transfer("copy", 0, DRAM, "local.s"),),
    )
    assert chip.unit("local.s") is None


def test_cycles_of_a_vector_follow_from_the_bandwidth_of_its_scope():
    unit = TINY.vector_units[0]
    one = replace(TINY, scopes=tuple(replace(s, reads=1) for s in TINY.scopes))
    assert TINY.vector_cycles(unit) == (1, 1) and one.vector_cycles(unit) == (1, 2)
    assert one.vector_cycles(replace(unit, cycles=(0.5, 0.5))) == (0.5, 0.5)
