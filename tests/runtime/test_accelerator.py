"""Commands for the engines of an accelerator."""

from __future__ import annotations

from tilewright.runtime.accelerator import Address, Command


def test_the_text_of_a_command() -> None:
    assert str(Command(1, "load", {"memory": "inp", "dram": Address(0, 64)}, (2,), (2, 2))) == (
        "engine 1: load memory=inp dram=argument 0 + 64 pops=(2,) pushes=(2, 2)"
    )
    assert str(Command(2, "nop", {})) == "engine 2: nop"
