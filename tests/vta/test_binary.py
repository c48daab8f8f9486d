"""Program files: what is saved is loaded, and files that are damaged, foreign or for another chip are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.runtime.accelerator import Address, Command
from tilewright.runtime.errors import LoadError
from tilewright.runtime.seal import sealed
from tilewright.vta.assembler import assemble
from tilewright.vta.binary import Argument, Code, Function, Program, Relocation
from tilewright.vta.config import Config
from tilewright.vta.driver import encode_commands

CONFIG = Config()
SEAL = len(sealed(b""))


def example() -> Program:
    commands = [
        Command(1, "load", {"memory": "inp", "sram": 0, "dram": Address(0, 32), "rows": 2, "columns": 2, "stride": 7}, (), (2,)),
        Command(2, "gemm", {"acc": 0, "loops": ((4, 1, 1, 0), (3, 0, 2, 1), (2, 8, 0, 3))}, (1,), (3,)),
        Command(3, "store", {"memory": "out", "sram": 0, "dram": Address(1, 0), "rows": 1, "columns": 4, "stride": 4}, (2,)),
    ]  # fmt: skip
    arguments = (Argument("data", "int8", (2, 7, 16), "in"), Argument("out", "int8", (4, 16), "out"))
    program = Program(CONFIG)
    program.add(Function("product", arguments, encode_commands(commands, CONFIG)))
    program.add(Function("nothing", (), encode_commands([], CONFIG)))
    return program


def test_files_are_read_back(tmp_path: Path) -> None:
    program = example()
    program.save(tmp_path / "code.vta")
    assert Program.load(tmp_path / "code.vta", CONFIG) == program
    assert Program.decode(program.encode(), Config(dram_latency=3)).functions == program.functions


def test_a_program_as_text() -> None:
    text = example().text()
    assert [
        line.split("#", 1)[-1].strip() if line.startswith("#") else " ".join(line.split())
        for line in text.splitlines()
    ] == [
        f"configuration {CONFIG.fingerprint}",
        "function product",
        "argument 0: data: int8[2, 7, 16], in",
        "argument 1: out: int8[4, 16], out",
        "load.uop rows=1 columns=2 # 0, dram counts from micro-ops",
        "load.inp dram=2 rows=2 columns=2 stride=7 push=next # 1, dram counts from data",
        "gemm end=2 outer=4 inner=3 acc_outer=1 inp_outer=1 inp_inner=2 wgt_inner=1 pop=prev push=next # 2",
        "store.out rows=1 columns=4 pop=prev # 3, dram counts from out",
        "finish # 4",
        "uop dst=0 src=0 wgt=0 # micro-op 0",
        "uop dst=8 src=0 wgt=3 # micro-op 1",
        "function nothing",
        "finish # 0",
    ]
    functions = example().functions
    instructions = [i for f in functions.values() for i in f.code.instructions]
    assert assemble(text, CONFIG) == (instructions, list(functions["product"].code.micro_ops))


def test_a_name_is_used_once() -> None:
    program = example()
    with pytest.raises(ValueError, match=r"^the program already has a function 'nothing'$"):
        program.add(Function("nothing", (), Code(())))


def refusal(data: bytes, config: Config = CONFIG) -> str:
    with pytest.raises(LoadError) as caught:
        Program.decode(data, config, "a.vta")
    return str(caught.value)


def test_files_that_are_refused_by_name() -> None:
    data = example().encode()
    size = len(data)
    assert (
        refusal(b"\x7fELF" + data)
        == "a.vta: this is not a program for the chip: it begins with b'\\x7fELF\\x89TWV'"
    )
    assert refusal(b"") == "a.vta: the file is truncated: it has 0 bytes, not even a header; copy it again"
    assert (
        refusal(data[:20])
        == "a.vta: the file is truncated: it has 20 bytes, not even a header; copy it again"
    )
    assert refusal(data[:100]) == f"a.vta: the file is truncated: it has 100 of {size} bytes; copy it again"
    assert (
        refusal(data[:-1])
        == f"a.vta: the file is truncated: it has {size - 1} of {size} bytes; copy it again"
    )
    assert refusal(data[:8] + b"\2" + data[9:]) == (
        "a.vta: the file has version 2 of the format, and version 1 is read; compile it again"
    )
    assert refusal(data[:200] + bytes([data[200] ^ 1]) + data[201:]) == (
        "a.vta: the file is damaged: its content does not match the checksum that was written at export; export or copy it "
        "again"
    )
    assert refusal(data + b"x").startswith("a.vta: the file is damaged: ")
    assert refusal(data, Config(log_batch=1, log_inp_buff_size=14)) == (
        "a.vta: the program is for another configuration of the chip: LOG_BATCH=0 (here 1), LOG_INP_BUFF_SIZE=15 (here 14); "
        "compile it again, or set VTA_CONFIG to its configuration"
    )


def resealed(old: bytes, new: bytes) -> bytes:
    """The file with its header changed and sealed again, as a person with bad intent would."""
    data = example().encode()
    magic, version, length, _ = struct.unpack_from("<8sIIQ", data)
    header, body = data[24 : 24 + length], data[24 + length : -SEAL]
    assert old in header + body
    header, body = (header.replace(old, new), body) if old in header else (header, body.replace(old, new))
    return sealed(
        struct.pack("<8sIIQ", magic, version, len(header), 24 + len(header) + len(body) + SEAL)
        + header
        + body
    )


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (b'"functions"', b'"funktions"', "a.vta: damaged: the entry of a function is incomplete"),
        (b'"config"', b'"konfig"', "a.vta: damaged: the header has no configuration"),
        (b'"nothing"', b'"product"', "a.vta: damaged: two functions are called 'product'"),
        (b'"nothing"', b"7", "a.vta: damaged: the entry of function 7 is not one"),
        (b'"in"', b'"up"', "a.vta: damaged: the entry of function 'product' is not one"),
        (b"[4,16]", b"[4,-1]", "a.vta: damaged: the entry of function 'product' is not one"),
        (
            b"[16,0,0]",
            b"[32,0,0]",
            "a.vta: nothing: damaged: a section of 32 bytes is cut off or has a part of an entry",
        ),
        (
            b"[16,0,0]",
            b"[8,0,0]",
            "a.vta: nothing: damaged: a section of 8 bytes is cut off or has a part of an entry",
        ),
        (b"[16,0,0]", b"[0,0,0]", "a.vta: damaged: 128 bytes of code are there, and 112 belong to functions"),
        (
            struct.pack("<ii", 3, 1),
            struct.pack("<ii", 4, 1),
            "a.vta: product: damaged: a relocation of instruction 4 to argument 1, which do not exist or have no address",
        ),
        (
            struct.pack("<ii", 3, 1),
            struct.pack("<ii", 3, 2),
            "a.vta: product: damaged: a relocation of instruction 3 to argument 2, which do not exist or have no address",
        ),
    ],
)
def test_contents_that_contradict_each_other(old: bytes, new: bytes, text: str) -> None:
    assert refusal(resealed(old, new)) == text


def test_reserved_opcodes_in_a_file() -> None:
    finish = bytes([3, *[0] * 15])
    assert refusal(resealed(finish, bytes([6]) + finish[1:])) == (
        "a.vta: product: damaged: instruction 4: opcode 6 is reserved (bytes 06000000000000000000000000000000); the chip has "
        "0 LOAD, 1 STORE, 2 GEMM, 3 FINISH, 4 ALU"
    )


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.integers(0, 700), st.integers(0, 7))
def test_no_bit_can_be_changed(at: int, bit: int) -> None:
    data = bytearray(example().encode())
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(LoadError):
        Program.decode(bytes(data), CONFIG)


def test_relocations_of_unknown_arguments_are_kept_out_of_files() -> None:
    program = Program(CONFIG)
    instructions, _ = assemble("load.inp rows=1 columns=1\nfinish", CONFIG)
    program.add(Function("f", (), Code(tuple(instructions), (), (Relocation(0, 0),))))
    assert refusal(program.encode()).startswith(
        "a.vta: f: damaged: a relocation of instruction 0 to argument 0"
    )
