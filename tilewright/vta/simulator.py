"""The simulator: runs the code of a function on data in the simulated DRAM, and counts cycles.

    code ──relocate──▶ instructions ──▶ Work for each ──▶ runtime.engines (when) ──▶ Chip (what) ──▶ DRAM

How long an instruction takes, besides waiting for tokens and for the DRAM port:

    LOAD, STORE   latency + rows * row cycles + bytes / bytes per cycle + one cycle for each element of zeros
    GEMM          micro-ops * outer * inner + the depth of its pipeline: one product a cycle
    ALU           the same with one or, for two operands and one read port of acc, two cycles each
    others        one cycle
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..runtime.engines import EngineModel, Span, Trace, Work, simulate
from .assembler import disassemble, mnemonic
from .binary import MICRO_OPS, Code
from .config import Config, Memory
from .datapath import datapath, shift_amounts
from .device import Dram
from .errors import SimulatorError
from .isa import (
    ENGINES,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    encode_micro_ops,
)
from .layout import MEMORIES

if TYPE_CHECKING:
    import numpy as np

_MEMORY_NAMES: Final = {number: name for name, number in MEMORIES.items()}
_STORED: Final = ("out", "acc")
# The counters with their classic names.
COUNTERS: Final = (
    *("inp_load_nbytes", "wgt_load_nbytes", "acc_load_nbytes", "uop_load_nbytes", "out_store_nbytes"),
    *("gemm_counter", "alu_counter"),
)


@dataclass
class Statistics:
    """Counts of one run or, as a sum, of several: the classic counters, cycles, and busy and stall cycles by engine."""

    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    cycles: int = 0
    instructions: int = 0
    port_cycles: int = 0
    busy: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENGINES.values(), 0))
    stalls: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in ENGINES.values()})

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            _sums(self.counters, other.counters),
            self.cycles + other.cycles,
            self.instructions + other.instructions,
            self.port_cycles + other.port_cycles,
            _sums(self.busy, other.busy),
            {name: _sums(self.stalls[name], other.stalls[name]) for name in self.stalls},
        )

    def table(self) -> dict[str, Any]:
        """All figures as a table that JSON can hold, the classic counters at its top."""
        share = {name: busy / self.cycles if self.cycles else 0.0 for name, busy in self.busy.items()}
        return {
            **self.counters,
            "cycles": self.cycles,
            "instructions": self.instructions,
            "dram_port_cycles": self.port_cycles,
            "gemm_utilisation": self.counters["gemm_counter"] / self.cycles if self.cycles else 0.0,
            "utilisation": share,
            "busy_cycles": dict(self.busy),
            "stall_cycles": {name: dict(causes) for name, causes in self.stalls.items()},
        }


@dataclass
class Report:
    """The result of a run: its statistics, and the timeline of the engines."""

    statistics: Statistics
    trace: Trace

    @property
    def cycles(self) -> int:
        return self.trace.cycles

    @property
    def timeline(self) -> list[Span]:
        return self.trace.timeline


class _Cost(NamedTuple):
    """The cost of an instruction: its own cycles, the counter that it adds to, its effect, and its transfer."""

    cycles: int
    counter: str = ""
    counted: int = 0
    action: Callable[..., None] | None = None
    read: int = 0
    written: int = 0
    rows: int = 0


class Simulator:
    """A chip of a configuration, with its buffers, beside a DRAM."""

    def __init__(self, config: Config, dram: Dram) -> None:
        self.config = config
        self.dram = dram
        self.chip = Chip(config, dram)
        self.model = EngineModel(
            ENGINES,
            command_queue_depth=config.command_queue_depth,
            token_queue_depth=config.token_queue_depth,
            bytes_per_cycle=config.dram_bytes_per_cycle,
            latency=config.dram_latency,
            row_cycles=config.dram_row_cycles,
        )

    def run(self, code: Code, addresses: Sequence[int] = (), execute: bool = True) -> Report:
        """Run code with arguments at addresses of the DRAM. Without `execute`, only cycles are counted: these depend on
        no data, and no addresses are needed."""
        instructions = code.instructions
        if not instructions or not isinstance(instructions[-1], Finish):
            last = (
                f"instruction {len(instructions) - 1} ({disassemble(instructions[-1])})"
                if instructions
                else "nothing"
            )
            raise SimulatorError(f"the program ends with {last}; its last instruction must be FINISH")
        table = encode_micro_ops(code.micro_ops, self.config) if execute else b""
        place = self.dram.allocate(len(table)) if table else 0
        try:
            if table:
                self.chip.write(place, table)
            bases = self._bases(code, {**dict(enumerate(addresses)), MICRO_OPS: place}) if execute else {}
            works, counters = self._works(instructions, bases, execute)
            trace = simulate(works, self.model)
        finally:
            if table:
                self.dram.release(place)
        statistics = Statistics(
            counters,
            trace.cycles,
            len(instructions),
            trace.port_cycles,
            {ENGINES[e]: cycles for e, cycles in trace.busy.items()},
            {ENGINES[e]: causes for e, causes in trace.stalls.items()},
        )
        return Report(statistics, trace)

    def _bases(self, code: Code, addresses: dict[int, int]) -> dict[int, int]:
        """What relocations add to the field `dram` of instructions, in elements."""
        found: dict[int, int] = {}
        for number, argument in code.relocations:
            instruction = code.instructions[number]
            if not isinstance(instruction, (Load, Store)):
                raise _refusal(number, instruction, "a relocation names it, and it has no address")
            if argument not in addresses:
                raise _refusal(
                    number,
                    instruction,
                    f"it addresses argument {argument}, and {len(addresses) - 1} are given",
                )
            element = self.config.memories[_MEMORY_NAMES[instruction.memory]].element_bytes
            found[number], rest = divmod(addresses[argument], element)
            if rest:
                raise _refusal(
                    number,
                    instruction,
                    f"argument {argument} is at address {addresses[argument]:#x}, which is not a multiple of an "
                    f"element of {element} bytes; use an array of its own instead of a part of one",
                )
        return found

    def _works(
        self, instructions: Sequence[Instruction], bases: dict[int, int], execute: bool
    ) -> tuple[list[Work], dict[str, int]]:
        """The instructions as the engines see them, and the counters of all of them."""
        counters = dict.fromkeys(COUNTERS, 0)
        works = []
        for number, instruction in enumerate(instructions):
            pops, pushes = instruction.pops, instruction.pushes
            if isinstance(instruction, Finish) and number != len(instructions) - 1:
                raise _refusal(
                    number, instruction, "FINISH must be the last instruction, and others are behind it"
                )
            if any(engine not in ENGINES for engine in (*pops, *pushes)):
                own = ENGINES[instruction.engine]
                raise _refusal(
                    number, instruction, f"{own} has no neighbour on that side to exchange tokens with"
                )
            cost = self._cost(number, instruction, bases.get(number, 0))
            if cost.counter:
                counters[cost.counter] += cost.counted
            run = partial(cost.action, number, instruction) if execute and cost.action else None
            label = mnemonic(instruction)
            transfer = (cost.read, cost.written, cost.rows)
            works.append(Work(instruction.engine, label, cost.cycles, *transfer, pops, pushes, run))
        return works, counters

    def _cost(self, number: int, instruction: Instruction, base: int) -> _Cost:
        """What an instruction takes and does, as the table at the top of this file says."""
        if isinstance(instruction, (Load, Store)):
            return self._transfer_cost(number, instruction, base)
        if isinstance(instruction, (Gemm, Alu)):
            count = max(instruction.end - instruction.begin, 0) * instruction.outer * instruction.inner
            if isinstance(instruction, Gemm):
                counter = "" if instruction.reset else "gemm_counter"
                return _Cost(max(1, count + self.config.gemm_depth), counter, count, self.chip.gemm)
            each = -(-(1 if instruction.use_imm else 2) // self.config.acc_read_ports)
            return _Cost(max(1, count * each + self.config.alu_depth), "alu_counter", count, self.chip.alu)
        return _Cost(1)

    def _transfer_cost(self, number: int, instruction: Load | Store, base: int) -> _Cost:
        memory = self._memory(number, instruction)
        moved = instruction.rows * instruction.columns
        nbytes, rows = moved * memory.element_bytes, instruction.rows if moved else 0
        if isinstance(instruction, Store):
            action = partial(self.chip.store, memory, base) if moved else None
            return _Cost(0 if moved else 1, "out_store_nbytes", nbytes, action, written=nbytes, rows=rows)
        zeros = instruction.elements - moved
        counter = f"{'acc' if memory.name == 'acc8' else memory.name}_load_nbytes"
        action = partial(self.chip.load, memory, base) if moved or zeros else None
        return _Cost(zeros if moved else max(zeros, 1), counter, nbytes, action, read=nbytes, rows=rows)

    def _memory(self, number: int, instruction: Load | Store) -> Memory:
        name = _MEMORY_NAMES.get(instruction.memory, "")
        if name not in self.config.memories or (
            name not in _STORED if isinstance(instruction, Store) else name == "out"
        ):
            raise _refusal(
                number,
                instruction,
                f"memory {instruction.memory} ({name or 'reserved'}) cannot be accessed this way",
            )
        return self.config.memories[name]


class Chip:
    """The buffers of the chip, and what each instruction does with them."""

    def __init__(self, config: Config, dram: Dram) -> None:
        self.config = config
        self.dram = dram

    @cached_property
    def buffers(self) -> dict[str, np.ndarray[Any, Any]]:
        """The buffers as arrays; uop holds decoded micro-ops, and elements of wgt are transposed."""
        import numpy as np

        config = self.config
        shapes = {
            "uop": ((3,), "int32"),
            "inp": ((config.batch, config.block_in), config.inp_dtype),
            "wgt": ((config.block_in, config.block_out), config.wgt_dtype),
            "acc": ((config.batch, config.block_out), config.acc_dtype),
        }
        return {
            name: np.zeros((config.depth(name), *shape), dtype) for name, (shape, dtype) in shapes.items()
        }

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        """Views of the buffers and of the DRAM, as the compiled functions take them."""
        from ..runtime.ndarray import from_dlpack

        flat = {f"{name}.flat": array.reshape(array.shape[0], -1) for name, array in self.buffers.items()}
        kinds = {self.config.memories[name].dtype for name in ("inp", "wgt", "acc", "out")}
        memory = {f"dram.{kind}": self.dram.bytes.view(kind) for kind in kinds}
        return {name: from_dlpack(array) for name, array in {**self.buffers, **flat, **memory}.items()}

    @cached_property
    def _functions(self) -> dict[str, Callable[..., None]]:
        return datapath(self.config)

    @cached_property
    def _limits(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """The greatest indices of kernels in the buffer, by their range."""
        return {}

    def clear(self) -> None:
        """Write zeros into all buffers."""
        for buffer in self.buffers.values():
            buffer[...] = 0
        self._limits.clear()

    def write(self, address: int, data: bytes) -> None:
        """Write bytes into the DRAM."""
        import numpy as np

        self.dram.bytes[address : address + len(data)] = np.frombuffer(data, np.uint8)

    # -- transfers -------------------------------------------------------------------------------
    def load(self, memory: Memory, base: int, number: int, at: Load) -> None:
        if at.sram + at.elements > memory.depth:
            raise _refusal(
                number,
                at,
                f"it writes elements {at.sram} to {at.sram + at.elements - 1}, and {memory.name} has {memory.depth}",
            )
        dram = self._check_dram(memory, base, number, at)
        width = at.left + at.columns + at.right
        first = at.sram + at.top * width + at.left
        if memory.name == "uop":
            self._load_micro_ops(at, dram, width, first)
            return
        name = "acc" if memory.name == "acc8" else memory.name
        if at.elements > at.rows * at.columns:
            self.buffers[name][at.sram : at.sram + at.elements] = 0
        if at.rows and at.columns:
            sram = self._arrays["wgt" if name == "wgt" else f"{name}.flat"]
            source = self._arrays[f"dram.{memory.dtype}"]
            self._functions[f"load_{memory.name}"](
                source, sram, dram, first, at.rows, at.columns, at.stride, width
            )

    def _load_micro_ops(self, at: Load, dram: int, width: int, first: int) -> None:
        import numpy as np

        self._limits.clear()
        table = self.buffers["uop"]
        table[at.sram : at.sram + at.elements] = 0
        words = self.dram.bytes.view("<u4")
        for row in range(at.rows):
            part = words[dram + row * at.stride :][: at.columns].astype(np.int64)
            shift = 0
            for column, f in enumerate(self.config.layouts["micro-op"]):
                table[first + row * width :][: at.columns, column] = (part >> shift) & f.high
                shift += f.width

    def store(self, memory: Memory, base: int, number: int, at: Store) -> None:
        count = at.rows * at.columns
        if at.sram + count > memory.depth:
            raise _refusal(
                number,
                at,
                f"it reads elements {at.sram} to {at.sram + count - 1}, and acc has {memory.depth}",
            )
        dram = self._check_dram(memory, base, number, at)
        if count:
            self._functions[f"store_{memory.name}"](
                self._arrays[f"dram.{memory.dtype}"],
                self._arrays["acc.flat"],
                *(dram, at.sram, at.rows, at.columns, at.stride, at.columns),
            )

    def _check_dram(self, memory: Memory, base: int, number: int, at: Load | Store) -> int:
        """The first element in DRAM; refuses a row that is not within one allocation."""
        dram = base + at.dram
        if not at.rows or not at.columns:
            return dram
        size = memory.element_bytes
        last = dram + (at.rows - 1) * at.stride
        whole = self.dram.holds(dram * size, (last - dram + at.columns) * size)
        if not whole:
            for row in range(at.rows):
                start = (dram + row * at.stride) * size
                if not self.dram.holds(start, at.columns * size):
                    raise _refusal(
                        number,
                        at,
                        f"row {row} is at DRAM addresses {start:#x} to {start + at.columns * size:#x}, which is not "
                        f"within one allocation; allocated are: {self.dram.describe()}",
                    )
        return dram

    # -- arithmetic ------------------------------------------------------------------------------
    def gemm(self, number: int, at: Gemm) -> None:
        acc, inp, wgt = self._highest(number, at)
        names = ("acc",) if at.reset else ("acc", "inp", "wgt")
        for name, index in zip(names, (acc, inp, wgt)):
            top = (
                index
                + (at.outer - 1) * getattr(at, f"{name}_outer")
                + (at.inner - 1) * getattr(at, f"{name}_inner")
            )
            self._check_index(number, at, name, top)
        if at.begin >= at.end or not at.outer or not at.inner:
            return
        arrays, loops = self._arrays, (at.begin, at.end, at.outer, at.inner, at.acc_outer, at.acc_inner)
        if at.reset:
            self._functions["reset"](arrays["acc.flat"], arrays["uop"], *loops)
        else:
            steps = (at.inp_outer, at.inp_inner, at.wgt_outer, at.wgt_inner)
            self._functions["gemm"](
                arrays["acc"], arrays["inp"], arrays["wgt"], arrays["uop"], *loops, *steps
            )

    def alu(self, number: int, at: Alu) -> None:
        dst, src, _ = self._highest(number, at)
        for index, outer, inner in ((dst, at.dst_outer, at.dst_inner), (src, at.src_outer, at.src_inner)):
            self._check_index(number, at, "acc", index + (at.outer - 1) * outer + (at.inner - 1) * inner)
        if at.begin >= at.end or not at.outer or not at.inner:
            return
        acc, uop = self._arrays["acc.flat"], self._arrays["uop"]
        loops = (at.begin, at.end, at.outer, at.inner, at.dst_outer, at.dst_inner, at.src_outer, at.src_inner)
        if at.use_imm:
            right, left = shift_amounts(at.imm, self.config.acc_dtype)
            self._functions["alu_imm"](acc, uop, at.op, at.imm, right, left, *loops)
        else:
            self._functions["alu"](acc, uop, at.op, *loops)

    def _highest(self, number: int, at: Gemm | Alu) -> tuple[int, int, int]:
        """The greatest indices in the micro-ops of an instruction."""
        depth = self.config.depth("uop")
        if at.end > depth:
            raise _refusal(
                number, at, f"it runs micro-ops {at.begin} to {at.end - 1}, and the buffer has {depth}"
            )
        if at.begin >= at.end:
            return 0, 0, 0
        found = self._limits.get((at.begin, at.end))
        if found is None:
            dst, src, wgt = map(int, self.buffers["uop"][at.begin : at.end].max(axis=0))
            found = self._limits[at.begin, at.end] = dst, src, wgt
        return found

    def _check_index(self, number: int, at: Instruction, name: str, top: int) -> None:
        depth = self.config.depth(name)
        if top >= depth:
            raise _refusal(number, at, f"it reaches element {top} of {name}, which has {depth}")


def _refusal(number: int, instruction: Instruction, why: str) -> SimulatorError:
    return SimulatorError(f"instruction {number} ({disassemble(instruction)}): {why}")


def _sums(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in (*a, *(n for n in b if n not in a))}
