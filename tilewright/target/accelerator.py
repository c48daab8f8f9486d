"""Accelerators with decoupled access and execution: engines that run side by side and wait for each other by tokens.

          ┌───────── instructions, in program order ─────────┐
          ▼                      ▼                           ▼
     ┌──────────┐  tokens  ┌───────────┐  tokens  ┌───────────────┐
     │   load   │ ───────▶ │  compute  │ ───────▶ │     store     │       each engine runs its own queue in order
     │          │ ◀─────── │           │ ◀─────── │               │
     └────┬─────┘          └─────┬─────┘          └───────┬───────┘
          ▼                      ▼                        ▼
        input and weight    ◀─ scopes: memories of the chip that programs address ─▶  accumulators
          ▲                                                                              │
          └────────────────────────────────── DRAM ◀─────────────────────────────────────┘

A chip is one value, `Accelerator`. Lowering reads it: which memories there are and how large, which engine moves data
between which of them, which engine computes with which instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.errors import TargetError

DRAM = "global"  # the storage scope of a program's arguments


@dataclass(frozen=True, slots=True)
class Scope:
    """A memory of the chip: buffers with the storage scope `name` are placed in it.

    Its addresses count elements of `lanes` scalars of type `dtype`: a vector or a small matrix, contiguous.
    """

    name: str  # the storage scope of buffers: "local.acc_buffer"
    memory: str  # its name in instructions: "acc"
    nbytes: int
    dtype: str
    lanes: int
    reads: int = 2  # its bandwidth: elements that can be read in a cycle

    @property
    def element_bytes(self) -> int:
        return self.lanes * _bits(self.dtype) // 8

    @property
    def elements(self) -> int:
        return self.nbytes // self.element_bytes


def _bits(dtype: str) -> int:
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) if digits else 32


@dataclass(frozen=True, slots=True)
class Engine:
    """A unit that executes its own queue of instructions in order, beside the others."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A DMA instruction between DRAM and a scope: rows of contiguous elements at a stride.

    `narrows` has the types in DRAM that elements of the chip are converted to on the way, by truncation, `widens` those
    that they are converted from. `pads`: rows and columns of
    zeros around the data, as a convolution wants them.
    """

    name: str  # of the instruction
    engine: int
    source: str  # storage scopes
    target: str
    pads: bool = False
    strided: bool = True
    narrows: tuple[str, ...] = ()
    widens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """Element by element operations on one scope.

    `operations` maps an operation (add, sub, mul, min, max, shift_right, …) to its name in the instruction. Operands
    are vectors in the scope, or for the second one of `immediate` bits a constant. A unit of `addresses` 2 overwrites
    its first operand where both are vectors; one of 3 writes elsewhere. Three operations are optional: `copy` moves a
    vector, `fill` stores a constant, and `multiply_add` adds the product of its operands to its result. A unit of
    integers does without the first two by sums with 0 and products with 0.

    An instruction runs up to `loops` loops over vectors, with a stride for each operand; None: any number of them. The
    loops around these are loops of the host. Programs mark a stage for the unit by the pragma `vector_unit`.
    """

    name: str
    engine: int
    scope: str
    operations: Mapping[str, str] = field(hash=False, compare=False)
    immediate: int = 16
    addresses: int = 3
    loops: int | None = None
    # For each vector: with an immediate operand, and with two vectors; by default as the scope can be read.
    cycles: tuple[float, float] | None = None
    depth: int = 4  # cycles of an instruction beside those of its vectors


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """Products of small matrices: `result[m, n] += left[m, k] * right[n, k]`, each an element of its scope.

    `update` and `reset` are the names of the tensor intrinsics that schedules tensorize to. A product takes one cycle,
    and an instruction `depth` cycles more.
    """

    name: str
    engine: int
    left: str  # storage scopes
    right: str
    result: str
    shape: tuple[int, int, int]  # m, n, k
    update: str
    reset: str
    depth: int = 4
    least_used: float = 0.5  # share of channels in padded blocks below which the host is as fast


@dataclass(frozen=True, slots=True)
class DramPort:
    """The figures of the memory port that all transfers share, in cycles of the chip."""

    bytes_per_cycle: int
    latency: int  # from a request to the first byte
    row: int  # for each row of a two-dimensional transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A chip: its memories, engines, the tokens between engines, and its instructions."""

    name: str
    scopes: tuple[Scope, ...]
    engines: tuple[Engine, ...]
    tokens: frozenset[tuple[int, int]]  # pairs of engines: the first one can push a token to the second
    transfers: tuple[Transfer, ...]
    vector_units: tuple[VectorUnit, ...] = ()
    matrix_units: tuple[MatrixUnit, ...] = ()
    port: DramPort = DramPort(8, 24, 1)
    clock: float = 100e6  # cycles in a second

    def scope(self, name: str) -> Scope | None:
        """The memory of a storage scope; None if it is not one of the chip's."""
        return next((s for s in self.scopes if s.name == name), None)

    def engine(self, number: int) -> Engine:
        """The engine with a number."""
        for e in self.engines:
            if e.number == number:
                return e
        numbers = ", ".join(f"{e.number} ({e.name})" for e in self.engines)
        raise TargetError(f"{self.name} has no engine {number}; its engines are {numbers}")

    def transfer(self, source: str, target: str) -> Transfer | None:
        """The instruction that copies from one storage scope to another."""
        return next((t for t in self.transfers if (t.source, t.target) == (source, target)), None)

    def vector_cycles(self, unit: VectorUnit) -> tuple[float, float]:
        """Cycles for each vector: with an immediate operand, and with two vectors."""
        scope = self.scope(unit.scope)
        return unit.cycles or (1, -(-2 // (scope.reads if scope is not None else 2)))

    def unit(self, scope: str) -> VectorUnit | None:
        """The vector unit that works on a storage scope."""
        return next((u for u in self.vector_units if u.scope == scope), None)

    def __post_init__(self) -> None:
        numbers = {e.number for e in self.engines}
        names = {DRAM, *(s.name for s in self.scopes)}
        for s in self.scopes:
            if s.nbytes < s.element_bytes:
                raise TargetError(
                    f"{self.name}: scope {s.name} has {s.nbytes} bytes, less than one element of "
                    f"{s.element_bytes}; enlarge the memory or use fewer lanes"
                )
        for a, b in self.tokens:
            if a == b or not {a, b} <= numbers:
                raise TargetError(
                    f"{self.name}: tokens from engine {a} to {b}, which are not two of its engines"
                )
        moves = [(t.name, t.engine, {t.source, t.target}) for t in self.transfers]
        for name, engine, used in moves + [(u.name, u.engine, {u.scope}) for u in self.vector_units]:
            self.engine(engine)
            if not used <= names:
                unknown = ", ".join(sorted(used - names))
                raise TargetError(
                    f"{self.name}: instruction {name} uses the scope {unknown}, which the chip does not have"
                )
