"""Differences between the languages of the C family. A dialect is a subclass that overrides its own part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from . import float8


class Packed(NamedTuple):
    """A vector type for loads and stores: its name, and the suffix of each lane."""

    type: str
    lanes: tuple[str, ...]  # `.x`, `.y`, …


class Parameter(NamedTuple):
    """A parameter of a kernel: a pointer to elements in global memory, a map of a tensor, or a number."""

    name: str
    dtype: DataType
    is_pointer: bool
    is_read_only: bool = False
    is_map: bool = False


def is_small_float(kind: DataType) -> bool:
    """Whether it is stored in 16 or 8 bits and computed in float32."""
    return kind.bits < 32 and kind.is_float


def widening_helper(kind: DataType) -> str:
    """The helper that makes a float32 of a 16-bit float."""
    return "tw_b2f" if kind.code == "bfloat" else "tw_h2f"


_C_MATH = frozenset(
    "exp exp2 exp10 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf floor ceil trunc pow fmod hypot atan2 copysign nextafter ldexp fma fabs".split()
)


class Dialect:
    """A language: its words for types, memory, threads, barriers and functions."""

    name: ClassVar[str] = ""
    types: ClassVar[Mapping[str, str]] = {
        "int8": "signed char",
        "uint8": "unsigned char",
        "int16": "short",
        "uint16": "unsigned short",
        "int32": "int",
        "uint32": "unsigned int",
        "int64": "long long",
        "uint64": "unsigned long long",
        "float16": "unsigned short",
        "bfloat16": "unsigned short",
        "float8_e4m3fn": "unsigned char",
        "float8_e5m2": "unsigned char",
        "float32": "float",
        "float64": "double",
        "bool": "bool",
    }
    # Keywords and predefined names, which variables must not have.
    words: ClassVar[frozenset[str]] = frozenset(
        "auto bool break case char const continue default do double else enum extern false float for goto half "
        "if inline int long register restrict return short signed sizeof static struct switch true typedef "
        "union unsigned void volatile while uchar ushort uint ulong min max abs kernel main".split()
    )
    helpers: ClassVar[Mapping[str, str]] = {}  # definitions that programs may need, by name
    # operators of this language only, by short name: functions of the printer and the call
    intrinsics: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {}
    math: ClassVar[Mapping[str, str]] = {}  # functions whose name differs from C's
    apart: ClassVar[str] = ""  # a helper that copies a 32-bit value into another register
    keep: ClassVar[str] = ""  # a helper that makes an integer opaque to the compiler
    prefix: ClassVar[str] = "static inline"  # the qualifiers of helper functions

    # -- types and constants -------------------------------------------------------------------
    def type(self, kind: DataType) -> str:
        """A scalar in a register."""
        found = self.types.get(kind)
        if found is None:
            raise LoweringError(f"{self.name} has no type for values of {kind}")
        return found

    def memory_type(self, kind: DataType) -> str:
        """A scalar in memory: a bool takes a byte."""
        return self.type(DataType("uint8") if kind.is_bool else kind.element)

    def unsigned(self, kind: DataType) -> str:
        """The unsigned type of as many bits."""
        return self.type(DataType(f"uint{kind.bits}"))

    def float_text(self, kind: DataType, value: float) -> str:
        """A float32 or float64 constant."""
        if math.isnan(value):
            return self.nan(kind)
        if math.isinf(value):
            return self.infinity(kind) if value > 0 else f"-{self.infinity(kind)}"
        if kind.bits == 64:
            return repr(value)
        import numpy as np

        with np.errstate(over="ignore"):
            rounded = np.float32(value)
        if np.isinf(rounded):
            return self.float_text(kind, float(rounded))
        return f"{_plain(str(rounded))}f"

    def infinity(self, kind: DataType) -> str:
        return "INFINITY" if kind.bits == 32 else f"({self.type(kind)})INFINITY"

    def nan(self, kind: DataType) -> str:
        return "NAN" if kind.bits == 32 else f"({self.type(kind)})NAN"

    def int_text(self, kind: DataType, value: int) -> str:
        """An integer constant; the least one has no literal of its own."""
        if kind.bits < 64:
            if kind.is_uint and kind.bits == 32:
                return f"{value}u"
            return "(-2147483647 - 1)" if value == -(1 << 31) else str(value)
        suffix = self.long_suffix + ("" if kind.is_int else "u")
        if value == -(1 << 63):
            return f"(-9223372036854775807{suffix} - 1)"
        return f"{value}{suffix}"

    long_suffix: ClassVar[str] = "ll"

    def cast(self, kind: DataType, text: str) -> str:
        """`text`, which binds as tightly as a cast needs, converted to a scalar type."""
        return f"({self.type(kind)}){text}"

    # -- functions -----------------------------------------------------------------------------
    def function(self, name: str, kind: DataType) -> str | None:
        """The name of a mathematical function over float32 or float64; None if there is none."""
        found = self.math.get(name)
        if found is None and name in _C_MATH:
            found = name
        if found is None:
            return None
        return f"{found}f" if kind.bits == 32 else found

    def reinterpret(self, new: DataType, old: DataType, text: str) -> tuple[str, str]:
        """The bits of a value as another type, and the helper that this needs."""
        raise LoweringError(f"{self.name} cannot reinterpret {old} as {new}")

    def least(self, name: str, kind: DataType, a: str, b: str) -> tuple[str, str]:
        """The `min` or `max` of two values, NaN if one is, and the helper that this needs."""
        helper = f"tw_{name}_{kind}"
        return f"{helper}({a}, {b})", helper

    def helper(self, name: str) -> str:
        """The definition of a helper."""
        if name.startswith(("tw_min_", "tw_max_")):
            kind, order = DataType(name[7:]), "<" if name.startswith("tw_min") else ">"
            text, nan = self.type(kind), " || x != x" if kind.is_float else ""
            head = f"{self.prefix} {text} {name}({text} a, {text} b)"
            if is_small_float(kind):
                wide, widen = self.type(DataType("float32")), widening_helper(kind)
                return f"{head} {{ const {wide} x = {widen}(a), y = {widen}(b); return x {order} y{nan} ? a : b; }}"
            return f"{head} {{ return a {order} b{nan.replace('x', 'a')} ? a : b; }}"
        if name.startswith("tw_dp4a") and name not in self.helpers:
            word, signs = self.type(DataType("int32")), name.removeprefix("tw_dp4a").strip("_") or "ss"
            x, y = (self.type(DataType("uint8" if sign == "u" else "int8")) for sign in signs)
            return (
                f"{self.prefix} {word} {name}({word} a, {word} b, {word} c) {{\n"
                f"  for (int i = 0; i < 32; i += 8) c += ({x})(a >> i) * ({y})(b >> i);\n  return c;\n}}"
            )
        if name.startswith("tw_report_"):
            return self.report(name, int(name.removeprefix("tw_report_")))
        if name == "tw_claim" and name not in self.helpers:
            raise LoweringError(f"{self.name} does not support checks of data inside a kernel")
        return float8.reading(self, name) or self.helpers[name]

    def report(self, name: str, count: int) -> str:
        """The helper that writes the values of the first failed check: `runtime/reports.py`."""
        long, word = DataType("int64"), self.type(DataType("int32"))
        values = "".join(f", {self.type(long)} v{i}" for i in range(count))
        stores = " ".join(f"p[{i + 1}] = v{i};" for i in range(count))
        return (
            f"{self.prefix} {word} {name}({self.pointer(long, 'global')} p, {word} check{values}) {{\n"
            f"  if (tw_claim(p, check)) {{ {stores} }}\n  return 0;\n}}"
        )

    def count_bits(self, name: str, kind: DataType, text: str) -> tuple[str, str]:
        """The `popcount` or `clz` of an integer as an int, and the helper that this needs."""
        raise LoweringError(f"{self.name} has no {name} of {kind}")

    # -- memory --------------------------------------------------------------------------------
    def pointer(self, kind: DataType, scope: str, const: bool = False) -> str:
        """A pointer type."""
        return f"{'const ' if const else ''}{self.memory_type(kind)}*"

    def packed(self, kind: DataType, lanes: int) -> Packed | None:
        """The vector type of `lanes` contiguous elements; None if there is none."""
        return None

    def load(self, packed: Packed, kind: DataType, pointer: str, scope: str) -> str:
        """The packed elements at an address."""
        return f"*({self._packed_pointer(packed, scope, True)})({pointer})"

    def load_once(self, packed: Packed, kind: DataType, pointer: str, scope: str) -> str:
        """A streaming load, of elements that are not read again."""
        return self.load(packed, kind, pointer, scope)

    def store(self, packed: Packed, kind: DataType, pointer: str, value: str, scope: str) -> str:
        """The statement that stores packed elements."""
        return f"*({self._packed_pointer(packed, scope, False)})({pointer}) = {value};"

    def pack(self, packed: Packed, values: Sequence[str]) -> str:
        """A packed value of its lanes."""
        return f"({packed.type})({', '.join(values)})"

    def _packed_pointer(self, packed: Packed, scope: str, const: bool) -> str:
        return f"{'const ' if const else ''}{packed.type}*"

    needs_alignment: ClassVar[bool] = True  # vector accesses must be aligned to their size

    def local_array(self, kind: DataType, name: str, size: int) -> str:
        """The declaration of thread-private memory."""
        return f"{self.memory_type(kind)} {name}[{size}];"

    def shared_array(self, kind: DataType, name: str, size: int) -> str:
        """The declaration of memory that a thread block shares."""
        raise LoweringError(f"{self.name} has no shared memory: {name}")

    def constant_array(self, kind: DataType, name: str, values: Sequence[str]) -> str:
        """The definition of a constant array, outside of functions."""
        return f"static const {self.memory_type(kind)} {name}[{len(values)}] = {{{', '.join(values)}}};"

    # -- threads -------------------------------------------------------------------------------
    def thread(self, tag: str) -> str:
        """The index of this thread or block along an axis."""
        raise LoweringError(f"{self.name} has no threads, but a loop is bound to {tag}")

    def barrier(self, scope: str) -> str:
        """The barrier statement."""
        raise LoweringError(f"{self.name} has no barriers between threads")

    def dynamic_shared(self) -> str:
        """The declaration of dynamic shared memory in a kernel; empty if it is a parameter."""
        raise LoweringError(f"{self.name} has no shared memory")

    def shuffle(self, how: str, mask: str, value: str, lane: str, width: str) -> str:
        """The value of another thread of the warp; `how` is idx, up or down."""
        raise LoweringError(f"{self.name} has no warp shuffles")

    def active_mask(self) -> str:
        """The mask of the active threads of the warp."""
        raise LoweringError(f"{self.name} has no mask of the active threads of a warp")

    def atomic_add(self, kind: DataType, pointer: str, value: str, scope: str) -> tuple[str, str]:
        """The call that adds to memory and returns the previous value, and the helper that it needs."""
        raise LoweringError(f"{self.name} has no atomic addition of {kind}")

    # -- whole programs --------------------------------------------------------------------------
    restrict: ClassVar[str] = "restrict"

    def parameter(self, p: Parameter, noalias: bool) -> str:
        """The declaration of a kernel parameter: a pointer (restrict if `noalias`), or a number."""
        if not p.is_pointer:
            return f"{self.memory_type(p.dtype)} {p.name}"
        alone = f" {self.restrict}" if noalias else ""
        return f"{self.pointer(p.dtype, 'global', p.is_read_only)}{alone} {p.name}"

    def kernel_head(self, name: str, params: Sequence[Parameter], threads: int | None, noalias: bool) -> str:
        """The first line of a kernel, up to the brace."""
        raise NotImplementedError

    def clustered(self, head: str, blocks: int) -> str:
        """The first line of a kernel whose blocks come in clusters."""
        raise LoweringError(
            f"{self.name} has no clusters of blocks; bind the loop of clusterCtaIdx.x to blockIdx"
        )

    def prologue(self, kinds: set[str]) -> list[str]:
        """The first lines of a program that uses values of these types."""
        return []

    unroll: ClassVar[str] = "#pragma unroll"
    registers_need_unrolling: ClassVar[bool] = False
    has_straight_logic: ClassVar[bool] = (
        False  # `&` and `|` of conditions are worth more than fewer operations
    )
    is_host: ClassVar[bool] = False  # functions return a code (0 is success), and may allocate memory


def _plain(text: str) -> str:
    """A number's text with a point or an exponent, so that it is a floating-point literal in C."""
    return text if any(c in text for c in ".en") else f"{text}.0"


class Spaced(Dialect):
    """Languages in which every pointer names its address space, and integers have short names: OpenCL C and Metal."""

    types: ClassVar[Mapping[str, str]] = {
        **Dialect.types,
        "int8": "char",
        "uint8": "uchar",
        "uint16": "ushort",
        "uint32": "uint",
        "int64": "long",
        "uint64": "ulong",
        "float16": "ushort",
        "bfloat16": "ushort",
        "float8_e4m3fn": "uchar",
        "float8_e5m2": "uchar",
    }
    spaces: ClassVar[Mapping[str, str]]  # by scope
    own_space: ClassVar[str]  # of what a thread has for itself
    long_suffix = "l"
    math: ClassVar[Mapping[str, str]] = {"round": "rint", "nearbyint": "rint", "rsqrt": "rsqrt"}

    def least(self, name: str, kind: DataType, a: str, b: str) -> tuple[str, str]:
        if not kind.is_integral:
            return super().least(name, kind, a, b)
        if kind.bits < 32:  # a number among the arguments would be an int
            a, b = f"({self.type(kind)})({a})", f"({self.type(kind)})({b})"
        return f"{name}({a}, {b})", ""

    def count_bits(self, name: str, kind: DataType, text: str) -> tuple[str, str]:
        return f"(int){name}({text})", ""

    def pointer(self, kind: DataType, scope: str, const: bool = False) -> str:
        return f"{self.spaces.get(scope, self.own_space)} {super().pointer(kind, scope, const)}"
