"""The assembler and the disassembler: instructions as text, and back.

    load.inp sram=0 dram=64 rows=4 columns=16 stride=64 top=1 pop=next push=next    # names of fields are the layout's
    gemm begin=1 end=10 outer=4 inner=14 acc_outer=14 acc_inner=1 pop=prev
    alu.max.imm begin=0 end=1 outer=1 inner=56 imm=0
    store.out sram=0 dram=0 rows=1 columns=56 pop=prev
    finish
    uop dst=0 src=0 wgt=0                                                           # the next micro-op

A field that is not given is 0. `uop` adds a micro-op to the table of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..ir.errors import near_matches
from .config import Config
from .errors import AssemblyError, InstructionError
from .isa import CLASSES, FIELD_NAMES, FLAGS, Instruction, MicroOp, encode, encode_micro_op
from .layout import ALU_OPS, MEMORIES

# The fields that a mnemonic sets.
_MNEMONICS: Final[dict[str, tuple[str, dict[str, int]]]] = {
    **{f"load.{name}": ("load", {"memory": number}) for name, number in MEMORIES.items()},
    **{f"store.{name}": ("store", {"memory": number}) for name, number in MEMORIES.items()},
    "gemm": ("gemm", {"reset": 0}),
    "gemm.reset": ("gemm", {"reset": 1}),
    **{f"alu.{name}": ("alu", {"op": number, "use_imm": 0}) for name, number in ALU_OPS.items()},
    **{f"alu.{name}.imm": ("alu", {"op": number, "use_imm": 1}) for name, number in ALU_OPS.items()},
    "finish": ("finish", {}),
}
_MICRO_OP: Final = "uop"
_NAMES: Final = {(kind, *sorted(fixed.items())): name for name, (kind, fixed) in _MNEMONICS.items()}
_FIXED: Final = {kind: tuple(sorted(fixed)) for kind, fixed in _MNEMONICS.values()}
_FREE: Final = {
    kind: tuple(name for name in FIELD_NAMES[kind] if name not in (*FLAGS, *_FIXED[kind])) for kind in CLASSES
}
_COMMENT: Final = "#"


def mnemonic(instruction: Instruction) -> str:
    """The first word of an instruction in text: `load.inp`."""
    kind = instruction.kind
    fixed = [(name, getattr(instruction, name)) for name in _FIXED[kind]]
    return _NAMES.get((kind, *fixed)) or ".".join([kind, *(f"{name}{value}" for name, value in fixed)])


def disassemble(instruction: Instruction) -> str:
    """An instruction as a line of text."""
    values = [(name, getattr(instruction, name)) for name in _FREE[instruction.kind]]
    words = [mnemonic(instruction), *(f"{name}={value}" for name, value in values if value)]
    for what in ("pop", "push"):
        sides = [side for side in ("prev", "next") if getattr(instruction, f"{what}_{side}")]
        words += [f"{what}={','.join(sides)}"] if sides else []
    return " ".join(words)


def listing(instructions: Iterable[Instruction], micro_ops: Iterable[MicroOp] = ()) -> str:
    """Instructions and micro-ops as text that the assembler reads."""
    lines = [disassemble(i) for i in instructions]
    lines += [f"{_MICRO_OP} dst={u.dst} src={u.src} wgt={u.wgt}" for u in micro_ops]
    return "".join(f"{line}\n" for line in lines)


def assemble(text: str, config: Config, where: str = "assembly") -> tuple[list[Instruction], list[MicroOp]]:
    """The instructions and the micro-ops of a text; an error names the line."""
    instructions: list[Instruction] = []
    micro_ops: list[MicroOp] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(_COMMENT, 1)[0].split()
        if not words:
            continue
        try:
            if words[0] == _MICRO_OP:
                values = _values(words[1:], ("dst", "src", "wgt"))
                micro_op = MicroOp(values.get("dst", 0), values.get("src", 0), values.get("wgt", 0))
                encode_micro_op(micro_op, config)
                micro_ops.append(micro_op)
            else:
                instructions.append(_instruction(words, config))
        except (AssemblyError, InstructionError) as error:
            raise AssemblyError(f"{where}, line {number}: {error}\n  | {line.strip()}") from None
    return instructions, micro_ops


def _instruction(words: Sequence[str], config: Config) -> Instruction:
    found = _MNEMONICS.get(words[0])
    if found is None:
        raise AssemblyError(
            f"unknown instruction {words[0]!r}{near_matches(words[0], [*_MNEMONICS, _MICRO_OP])}"
        )
    kind, fixed = found
    made = CLASSES[kind](**fixed, **_values(words[1:], _FREE[kind], tokens=True))
    encode(made, config)  # refuses values that do not fit
    return made


def _values(words: Sequence[str], names: Sequence[str], tokens: bool = False) -> dict[str, int]:
    """The fields that words such as `rows=4` and `pop=prev,next` set."""
    found: dict[str, int] = {}
    known = [*names, *(("pop", "push") if tokens else ())]
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise AssemblyError(f"{word!r} is not a field; write name=value, such as {known[0]}=1")
        if name not in known:
            raise AssemblyError(f"unknown field {name!r}{near_matches(name, known)}")
        if name in ("pop", "push"):
            given = {f"{name}_{side}": 1 for side in value.split(",")}
            if not given.keys() <= set(FLAGS):
                raise AssemblyError(
                    f"{word!r}: the neighbours of an engine are prev and next; write {name}=prev,next"
                )
        else:
            given = {name: _number(word, value)}
        if given.keys() & found.keys():
            raise AssemblyError(f"{name!r} is given twice")
        found |= given
    return found


def _number(word: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise AssemblyError(f"{word!r}: a whole number is expected, such as 16 or 0x10") from None
