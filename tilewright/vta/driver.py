"""The driver: commands of a program as instructions, micro-op kernels and dependence flags.

    Command(2, "gemm", …, pops=(1,), pushes=(3,))   ->   LOAD uop …                        (once for all kernels)
                                                         GEMM … pop_prev push_next

The commands, with indices and sizes in elements of their memory:

    load    memory (inp, wgt: engine 1; acc, acc8: engine 2), sram, dram: Address, rows, columns, stride,
            pad=(top, bottom, left, right)
    store   memory (out, acc), sram, dram: Address, rows, columns, stride                                     engine 3
    gemm    reset, acc, inp, wgt, loops=((extent, d_acc, d_inp, d_wgt), …)                                    engine 2
            acc[a] = 0 if reset else acc[a] + inp[i] @ wgt[w].T
    alu     op, imm or None, dst, src, loops=((extent, d_dst, d_src), …)                                      engine 2
            acc[dst] = op(acc[src], imm), or op(acc[dst], acc[src])
    nop     tokens without work                                                                             any engine

A command that exceeds the fields of an instruction becomes several: the first waits for its tokens, the last sends
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import index
from typing import Any, Final

from ..ir.errors import near_matches
from ..runtime.accelerator import Address, Command
from .binary import MICRO_OPS, Code, Relocation
from .config import Config
from .errors import InstructionError
from .isa import CLASSES, COMPUTE_ENGINE, ENGINES, LOAD_ENGINE, STORE_ENGINE, MicroOp
from .kernels import Limits, Loop, alu_reorders, bounds, pieces
from .layout import ALU_OPS, MEMORIES

_FIELDS: Final[dict[str, dict[str, Any]]] = {  # a field's default, or ... if it must be given
    "load": dict.fromkeys(("memory", "sram", "dram", "rows", "columns", "stride"), ...)
    | {"pad": (0, 0, 0, 0)},
    "store": dict.fromkeys(("memory", "sram", "dram", "rows", "columns", "stride"), ...),
    "gemm": {"reset": False, "acc": ..., "inp": 0, "wgt": 0, "loops": ()},
    "alu": {"op": ..., "imm": None, "dst": ..., "src": ..., "loops": ()},
    "nop": {},
}
_LOADED: Final = {"inp": LOAD_ENGINE, "wgt": LOAD_ENGINE, "acc": COMPUTE_ENGINE, "acc8": COMPUTE_ENGINE}
_STORED: Final = {"out": STORE_ENGINE, "acc": STORE_ENGINE}
_NO_OPS: Final[dict[int, tuple[str, dict[str, int]]]] = {
    LOAD_ENGINE: ("load", {"memory": MEMORIES["inp"]}),
    COMPUTE_ENGINE: ("load", {"memory": MEMORIES["uop"]}),
    STORE_ENGINE: ("store", {"memory": MEMORIES["out"]}),
}


def encode_commands(commands: Iterable[Command], config: Config) -> Code:
    """The code of a program of commands, with FINISH at its end.

    Where the kernels of the whole program fit the buffer of micro-ops, one instruction loads all of them at the start.
    Else each is loaded before the first instruction that runs it, and again after it was evicted.
    """
    listed = list(commands)
    code = _encode(listed, config, at_start=True)
    if len(code.micro_ops) > min(config.depth("uop"), _highest(config)["load", "columns"]):
        code = _encode(listed, config, at_start=False)
    return code


def _encode(commands: Sequence[Command], config: Config, at_start: bool) -> Code:
    driver = _Driver(config, at_start)
    for number, command in enumerate(commands):
        try:
            driver.command(command)
        except InstructionError as error:
            raise InstructionError(f"command {number} ({command}): {error}") from None
    return driver.finish()


@dataclass(slots=True)
class _Draft:
    """An instruction whose flags may still be set."""

    kind: str
    engine: int
    values: dict[str, int]
    argument: int | None = None


@dataclass
class _Driver:
    """The state while a program is encoded: instructions, kernels in the buffer, tokens that wait for a command."""

    config: Config
    at_start: bool  # whether all kernels are loaded at the start
    drafts: list[_Draft] = field(default_factory=list)
    last: dict[int, _Draft] = field(default_factory=dict)  # by engine
    waiting: dict[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # pops before an engine's next instruction
    micro_ops: list[MicroOp] = field(default_factory=list)
    kernels: dict[tuple[MicroOp, ...], int] = field(default_factory=dict)  # their places in `micro_ops`
    resident: dict[tuple[MicroOp, ...], int] = field(default_factory=dict)  # their places in the buffer
    top: int = 0  # where the buffer gets its next kernel

    def command(self, command: Command) -> None:
        """Encode a command."""
        values = _checked_fields(command)
        for what, others in (("pop", command.pops), ("push", command.pushes)):
            for other in others:
                self._flag(command.engine, what, other)  # refuses engines that are not neighbours
        pops = self.waiting.pop(command.engine, ()) + tuple(command.pops)
        made = list(self._instructions(command, values))
        if not made:
            self._tokens_only(command.engine, pops, tuple(command.pushes))
            return
        # A kernel is loaded before the command waits for tokens: that needs nothing of another engine.
        extra = self._take(made[0], "pop", pops)
        if extra:
            at = next(at for at in reversed(range(len(self.drafts))) if self.drafts[at] is made[0])
            self.drafts[at:at] = [self._no_op(command.engine, "pop", source) for source in extra]
        for target in self._take(made[-1], "push", tuple(command.pushes)):
            self._emit(self._no_op(command.engine, "push", target))

    def finish(self) -> Code:
        """The code of the commands so far."""
        self._emit(_Draft("finish", COMPUTE_ENGINE, {}))
        for engine, pops in sorted(self.waiting.items()):
            draft = self.drafts[-1]
            for source in self._take(draft, "pop", pops) if engine == COMPUTE_ENGINE else pops:
                self.drafts.insert(-1, self._no_op(engine, "pop", source))
        if self.at_start and self.micro_ops:
            self.drafts.insert(0, _kernel_load(0, 0, len(self.micro_ops)))
        relocations = [Relocation(i, d.argument) for i, d in enumerate(self.drafts) if d.argument is not None]
        return Code(
            tuple(CLASSES[d.kind](**d.values) for d in self.drafts), tuple(self.micro_ops), tuple(relocations)
        )

    # -- tokens ----------------------------------------------------------------------------------
    def _tokens_only(self, engine: int, pops: tuple[int, ...], pushes: tuple[int, ...]) -> None:
        """Tokens of a command without work: they go to the neighbours in the queue where that means the same."""
        if not pushes:
            if pops:
                self.waiting[engine] = pops
        elif pops:
            draft: _Draft | None = None
            for what, other in [*(("pop", s) for s in pops), *(("push", t) for t in pushes)]:
                if draft is None or self._take(draft, what, [other]):
                    draft = self._emit(self._no_op(engine, what, other))
        else:
            left = self._take(self.last[engine], "push", pushes) if engine in self.last else pushes
            for target in left:
                self._emit(self._no_op(engine, "push", target))

    def _take(self, draft: _Draft, what: str, others: Sequence[int]) -> list[int]:
        """Set the flags of an instruction for tokens; those that it has no more flag for are left."""
        left = []
        for other in others:
            flag = self._flag(draft.engine, what, other)
            if flag in draft.values:
                left.append(other)
            draft.values[flag] = 1
        return left

    def _flag(self, engine: int, what: str, other: int) -> str:
        if other in ENGINES and abs(other - engine) == 1:
            return f"{what}_{'prev' if other < engine else 'next'}"
        preposition = "from" if what == "pop" else "to"
        raise InstructionError(
            f"{ENGINES[engine]} has no token queue {preposition} engine {other}: tokens go between load (1) and "
            "compute (2), and between compute and store (3); pass it on through compute"
        )

    def _no_op(self, engine: int, what: str, other: int) -> _Draft:
        kind, values = _NO_OPS[engine]
        return _Draft(kind, engine, {**values, self._flag(engine, what, other): 1})

    def _emit(self, draft: _Draft) -> _Draft:
        self.drafts.append(draft)
        self.last[draft.engine] = draft
        return draft

    # -- instructions ----------------------------------------------------------------------------
    def _instructions(self, command: Command, values: Mapping[str, Any]) -> Iterator[_Draft]:
        """Emit the instructions of a command and yield them, without those that load its kernels."""
        if command.name == "load":
            yield from self._transfer(command, values, _LOADED)
        elif command.name == "store":
            yield from self._transfer(command, values, _STORED)
        elif command.name == "gemm":
            _check_engine(command, COMPUTE_ENGINE)
            yield from self._gemm(values)
        elif command.name == "alu":
            _check_engine(command, COMPUTE_ENGINE)
            yield from self._alu(values)

    def _transfer(
        self, command: Command, values: Mapping[str, Any], engines: Mapping[str, int]
    ) -> Iterator[_Draft]:
        name = values["memory"]
        if name not in engines:
            raise InstructionError(f"{command.name} has no memory {name!r}{near_matches(str(name), engines)}")
        _check_engine(command, engines[name])
        memory = self.config.memories[name]
        sizes = {key: _whole(key, values[key]) for key in ("sram", "rows", "columns")}
        stride = index(values["stride"])
        pad = tuple(_whole("pad", p) for p in values.get("pad", (0, 0, 0, 0)))
        if len(pad) != 4:
            raise InstructionError(f"pad={pad}: four numbers are expected: top, bottom, left, right")
        address = values["dram"]
        if not isinstance(address, Address):
            raise InstructionError(f"dram={address!r}: an Address is expected")
        at, rest = divmod(address.offset, memory.element_bytes)
        if rest:
            raise InstructionError(
                f"dram={address} is not a multiple of an element of {name}, which has {memory.element_bytes} bytes; "
                "change the layout of the array, so that the transfer begins with an element"
            )
        width = pad[2] + sizes["columns"] + pad[3]
        count = (pad[0] + sizes["rows"] + pad[1]) * width
        if sizes["sram"] + count > memory.depth:
            raise InstructionError(
                f"elements {sizes['sram']} to {sizes['sram'] + count - 1} of {name} are needed, and the buffer has "
                f"{memory.depth}; use smaller tiles"
            )
        parts = self._parts(command.name, sizes["sram"], at, sizes["rows"], sizes["columns"], stride, pad)
        for part in parts:
            if not 0 <= part.get("dram", 0) <= self._most(command.name, "dram"):
                raise InstructionError(
                    f"dram={address}: the offset does not fit the field `dram` of an instruction"
                )
            argument = address.argument if "dram" in part else None
            yield self._emit(
                _Draft(command.name, command.engine, {"memory": MEMORIES[name], **part}, argument)
            )

    def _parts(
        self, kind: str, sram: int, dram: int, rows: int, columns: int, stride: int, pad: tuple[int, ...]
    ) -> Iterator[dict[str, int]]:
        """The parts of a 2-D transfer, each of which fits an instruction; those without `dram` write zeros only."""
        top, bottom, left, right = pad
        width = left + columns + right
        if not rows or not columns:
            yield from self._zeros(sram, (top + rows + bottom) * width)
            return
        if not any(pad) and stride == columns:
            rows, columns = 1, rows * columns  # contiguous
        if rows == 1:
            stride = 0
        part = {"sram": sram, "dram": dram, "rows": rows, "columns": columns, "stride": stride}
        pads = dict(zip(("top", "bottom", "left", "right"), pad)) if any(pad) else {}
        if all(
            0 <= value <= self._most(kind, name) for name, value in {**part, **pads}.items() if name != "dram"
        ):
            yield {**part, **pads}
            return
        yield from self._zeros(sram, top * width)
        chunk = self._most(kind, "columns")
        for row in range(rows):
            at = sram + (top + row) * width
            yield from self._zeros(at, left)
            for c in range(0, columns, chunk):
                count = min(chunk, columns - c)
                yield {"sram": at + left + c, "dram": dram + row * stride + c, "rows": 1, "columns": count}
            yield from self._zeros(at + left + columns, right)
        yield from self._zeros(sram + (top + rows) * width, bottom * width)

    def _zeros(self, sram: int, count: int) -> Iterator[dict[str, int]]:
        """The parts that write zeros: one row of padding above no rows."""
        chunk = self._most("load", "columns")
        for at in range(0, count, chunk):
            yield {"sram": sram + at, "columns": min(chunk, count - at), "top": 1}

    def _gemm(self, values: Mapping[str, Any]) -> Iterator[_Draft]:
        base = {name: index(values[name]) for name in ("acc", "inp", "wgt")}
        reset = bool(values["reset"])
        loops = _loops(values["loops"], 3)
        if reset:  # only acc is accessed, and zeros need to be written once
            base.update(inp=0, wgt=0)
            loops = tuple(Loop(e, (steps[0], 0, 0)) for e, steps in loops if steps[0] or not e)
        if all(loop.extent for loop in loops):
            for memory, (name, at) in enumerate(base.items()):
                self._check_range(name, name, bounds(at, loops, memory))
        for piece in pieces(loops, self._limits("gemm"), True, 3):
            begin, end = self._kernel([MicroOp(*map(sum, zip(base.values(), u))) for u in piece.micro_ops])
            fields = {"reset": int(reset), "begin": begin, "end": end}
            for which, loop in (("outer", piece.outer), ("inner", piece.inner)):
                fields |= {which: loop.extent, **{f"{n}_{which}": s for n, s in zip(base, loop.steps)}}
            yield self._emit(_Draft("gemm", COMPUTE_ENGINE, fields))

    def _alu(self, values: Mapping[str, Any]) -> Iterator[_Draft]:
        op, imm = values["op"], values["imm"]
        if op not in ALU_OPS:
            raise InstructionError(f"unknown operation {op!r}{near_matches(str(op), ALU_OPS)}")
        low, high = next((f.low, f.high) for f in self.config.layouts["alu"] if f.name == "imm")
        if imm is not None and not low <= index(imm) <= high:
            raise InstructionError(
                f"imm={imm} does not fit an instruction, which holds {low} to {high}; load the number into acc and "
                "give its index as src"
            )
        dst, src = index(values["dst"]), index(values["src"])
        loops = _loops(values["loops"], 2)
        if all(loop.extent for loop in loops):
            self._check_range("dst", "acc", bounds(dst, loops, 0))
            self._check_range("src", "acc", bounds(src, loops, 1))
        immediate = {} if imm is None else {"use_imm": 1, "imm": index(imm)}
        reorder = alu_reorders(op, imm is not None, dst, src, loops)
        for outer, inner, micro_ops in pieces(loops, self._limits("alu"), reorder, 2):
            begin, end = self._kernel([MicroOp(dst + d, src + s) for d, s in micro_ops])
            fields = {"op": ALU_OPS[op], "begin": begin, "end": end}
            for which, loop in (("outer", outer), ("inner", inner)):
                fields |= {which: loop.extent, f"dst_{which}": loop.steps[0], f"src_{which}": loop.steps[1]}
            yield self._emit(_Draft("alu", COMPUTE_ENGINE, fields | immediate))

    def _kernel(self, kernel: Sequence[MicroOp]) -> tuple[int, int]:
        """The place of a kernel in the buffer of micro-ops; an instruction loads it where it is not there."""
        key = tuple(kernel)
        stored = self.kernels.setdefault(key, len(self.micro_ops))
        if stored == len(self.micro_ops):
            self.micro_ops += key
        if self.at_start:
            return stored, stored + len(key)
        at = self.resident.get(key)
        if at is None:
            at = self.top if self.top + len(key) <= self.config.depth("uop") else 0
            self.top = end = at + len(key)
            self.resident = {k: b for k, b in self.resident.items() if b >= end or b + len(k) <= at}
            self.resident[key] = at
            self._emit(_kernel_load(at, stored, len(key)))
        return at, at + len(key)

    # -- limits ----------------------------------------------------------------------------------
    def _check_range(self, field: str, memory: str, needed: tuple[int, int]) -> None:
        depth = self.config.depth(memory)
        if needed[0] < 0 or needed[1] >= depth:
            raise InstructionError(
                f"{field}: elements {needed[0]} to {needed[1]} of {memory} are needed, and the buffer has {depth}; use "
                "smaller tiles"
            )

    def _limits(self, kind: str) -> Limits:
        return Limits(self._most(kind, "outer"), min(self.config.depth("uop"), self._most("load", "columns")))

    def _most(self, kind: str, name: str) -> int:
        return _highest(self.config)[kind, name]


@lru_cache(8)
def _highest(config: Config) -> dict[tuple[str, str], int]:
    """The greatest value of each field of each instruction."""
    return {(kind, f.name): f.high for kind, fields in config.layouts.items() for f in fields}


def _kernel_load(sram: int, dram: int, count: int) -> _Draft:
    place = {"sram": sram, "dram": dram, "rows": 1, "columns": count}
    return _Draft("load", COMPUTE_ENGINE, {"memory": MEMORIES["uop"], **place}, MICRO_OPS)


def _checked_fields(command: Command) -> dict[str, Any]:
    """The fields of a command, with defaults; refuses unknown commands and engines, and unknown and missing fields."""
    if command.engine not in ENGINES:
        raise InstructionError(f"unknown engine {command.engine}; the chip has 1 load, 2 compute and 3 store")
    known = _FIELDS.get(command.name)
    if known is None:
        raise InstructionError(f"unknown command {command.name!r}{near_matches(command.name, _FIELDS)}")
    for name in command.fields:
        if name not in known:
            raise InstructionError(f"unknown field {name!r}{near_matches(name, known)}")
    values = {**known, **command.fields}
    for name, value in values.items():
        if value is ...:
            raise InstructionError(f"the field {name!r} is missing")
    return values


def _check_engine(command: Command, engine: int) -> None:
    if command.engine != engine:
        raise InstructionError(f"this is work of engine {engine} ({ENGINES[engine]})")


def _whole(name: str, value: Any) -> int:
    number = index(value)
    if number < 0:
        raise InstructionError(f"{name}={number} is negative")
    return number


def _loops(given: Sequence[Sequence[int]], memories: int) -> tuple[Loop, ...]:
    found = []
    for loop in given:
        if len(loop) != memories + 1:
            raise InstructionError(f"loop {tuple(loop)}: an extent and {memories} steps are expected")
        extent, *steps = map(index, loop)
        found.append(Loop(_whole("extent", extent), tuple(steps)))
    return tuple(found)
