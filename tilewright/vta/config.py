"""The configuration of the chip: the classic JSON keys, and those of the timing model.

    {"TARGET": "sim", "HW_VER": "0.0.2", "LOG_INP_WIDTH": 3, "LOG_BLOCK": 4, …, "DRAM_LATENCY": 24}

Sizes are logarithms to base 2. A buffer of the chip holds *elements*, and an index counts these:

    inp  BATCH x BLOCK_IN        wgt  BLOCK_OUT x BLOCK_IN        acc  BATCH x BLOCK_OUT        uop  a micro-op
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from ..ir.errors import near_matches
from ..runtime.json_reader import read_json
from .errors import ConfigError
from .layout import INSTRUCTION_BITS, MICRO_OP_BITS, Layout, layouts, width_of

TARGETS: Final = ("sim", "tsim", "pynq", "ultra96", "de10nano", "intelfocl")
_DTYPE_BITS: Final = (8, 16, 32)


class Key(NamedTuple):
    """A key of a configuration: its least and greatest value, and its meaning."""

    default: int
    low: int
    high: int
    meaning: str


# Keys that decide what the chip computes and how instructions are encoded.
SHAPE: Final[dict[str, Key]] = {
    "LOG_INP_WIDTH": Key(3, 0, 6, "bits of a number in inp"),
    "LOG_WGT_WIDTH": Key(3, 0, 6, "bits of a number in wgt"),
    "LOG_ACC_WIDTH": Key(5, 0, 6, "bits of a number in acc"),
    "LOG_BATCH": Key(0, 0, 10, "rows of the product of an element of inp and one of wgt"),
    "LOG_BLOCK_IN": Key(4, 0, 10, "numbers that a product sums up"),
    "LOG_BLOCK_OUT": Key(4, 0, 10, "columns of the product"),
    "LOG_UOP_BUFF_SIZE": Key(15, 0, 30, "bytes of the buffer of micro-ops"),
    "LOG_INP_BUFF_SIZE": Key(15, 0, 30, "bytes of inp"),
    "LOG_WGT_BUFF_SIZE": Key(18, 0, 30, "bytes of wgt"),
    "LOG_ACC_BUFF_SIZE": Key(17, 0, 30, "bytes of acc"),
}
# LOG_BLOCK is both LOG_BLOCK_IN and LOG_BLOCK_OUT.
_BLOCK: Final = SHAPE["LOG_BLOCK_IN"]._replace(meaning="numbers that a product sums up, and its columns")
# Keys of the timing model; all have defaults.
TIMING: Final[dict[str, Key]] = {
    "CLOCK_MHZ": Key(100, 1, 10_000, "the clock of the chip, in MHz"),
    "DRAM_BYTES_PER_CYCLE": Key(8, 1, 4096, "bytes that the DRAM port transfers in a cycle"),
    "DRAM_LATENCY": Key(24, 0, 100_000, "cycles from a request to the first byte"),
    "DRAM_ROW_CYCLES": Key(1, 0, 1000, "additional cycles for each row of a 2-D transfer"),
    "GEMM_DEPTH": Key(4, 0, 1000, "cycles to fill the pipeline of the matrix unit"),
    "ALU_DEPTH": Key(4, 0, 1000, "cycles to fill the pipeline of the ALU"),
    "ACC_READ_PORTS": Key(1, 1, 2, "elements of acc that can be read in a cycle"),
    "TOKEN_QUEUE_DEPTH": Key(512, 1, 1 << 20, "tokens that wait between two engines"),
    "COMMAND_QUEUE_DEPTH": Key(512, 1, 1 << 20, "instructions that wait before an engine"),
}
_TEXTS: Final = {"TARGET": "sim", "HW_VER": "0.0.2"}
# Keys that follow from others: accepted where they say the same.
_DERIVED: Final = ("LOG_OUT_WIDTH", "LOG_OUT_BUFF_SIZE")


class Memory(NamedTuple):
    """A buffer of the chip as LOAD and STORE see it: `depth` elements of `shape` numbers of type `dtype`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    depth: int
    element_bytes: int


@dataclass(frozen=True)
class Config:
    """A configuration that is consistent: `Config.of(keys)` reads the classic keys, `Config()` is the classic chip."""

    target: str = _TEXTS["TARGET"]
    version: str = _TEXTS["HW_VER"]
    log_inp_width: int = SHAPE["LOG_INP_WIDTH"].default
    log_wgt_width: int = SHAPE["LOG_WGT_WIDTH"].default
    log_acc_width: int = SHAPE["LOG_ACC_WIDTH"].default
    log_batch: int = SHAPE["LOG_BATCH"].default
    log_block_in: int = SHAPE["LOG_BLOCK_IN"].default
    log_block_out: int = SHAPE["LOG_BLOCK_OUT"].default
    log_uop_buff_size: int = SHAPE["LOG_UOP_BUFF_SIZE"].default
    log_inp_buff_size: int = SHAPE["LOG_INP_BUFF_SIZE"].default
    log_wgt_buff_size: int = SHAPE["LOG_WGT_BUFF_SIZE"].default
    log_acc_buff_size: int = SHAPE["LOG_ACC_BUFF_SIZE"].default
    clock_mhz: int = TIMING["CLOCK_MHZ"].default
    dram_bytes_per_cycle: int = TIMING["DRAM_BYTES_PER_CYCLE"].default
    dram_latency: int = TIMING["DRAM_LATENCY"].default
    dram_row_cycles: int = TIMING["DRAM_ROW_CYCLES"].default
    gemm_depth: int = TIMING["GEMM_DEPTH"].default
    alu_depth: int = TIMING["ALU_DEPTH"].default
    acc_read_ports: int = TIMING["ACC_READ_PORTS"].default
    token_queue_depth: int = TIMING["TOKEN_QUEUE_DEPTH"].default
    command_queue_depth: int = TIMING["COMMAND_QUEUE_DEPTH"].default

    def __post_init__(self) -> None:
        for name, key in {**SHAPE, **TIMING}.items():
            _check_number(name, getattr(self, name.lower()), key)
        self._check_widths()
        self._check_buffers()
        self._check_encoding()

    def check_target(self) -> None:
        """Refuse a TARGET that no program can be built for."""
        if self.target not in TARGETS:
            raise ConfigError(
                f"TARGET={self.target!r}: there is no such target of the chip; use one of {_list(TARGETS)}"
            )

    def _check_widths(self) -> None:
        for key in ("INP", "WGT", "ACC"):
            width = 1 << getattr(self, f"log_{key.lower()}_width")
            if width not in _DTYPE_BITS:
                raise ConfigError(
                    f"LOG_{key}_WIDTH={width.bit_length() - 1}: numbers of {width} bits have no data type in DRAM; "
                    "use 3, 4 or 5, for 8, 16 or 32 bits"
                )
        for key in ("INP", "WGT"):
            if getattr(self, f"log_{key.lower()}_width") > self.log_acc_width:
                raise ConfigError(
                    f"LOG_{key}_WIDTH={getattr(self, f'log_{key.lower()}_width')} is greater than LOG_ACC_WIDTH="
                    f"{self.log_acc_width}: an accumulator cannot hold a single product; increase LOG_ACC_WIDTH"
                )

    def _check_buffers(self) -> None:
        for name in ("uop", "inp", "wgt", "acc"):
            size, element = 1 << getattr(self, f"log_{name}_buff_size"), self._element_bytes(name)
            if size < element:
                key = f"LOG_{name.upper()}_BUFF_SIZE"
                raise ConfigError(
                    f"{key}={size.bit_length() - 1}: the buffer has {size} bytes and an element of it {element}; "
                    f"{key} must be at least {element.bit_length() - 1}"
                )

    def _check_encoding(self) -> None:
        for name, fields in self.layouts.items():
            most = MICRO_OP_BITS if name == "micro-op" else INSTRUCTION_BITS
            bits = width_of(fields)
            if bits > most:
                what = "a micro-op" if name == "micro-op" else f"the instruction {name.upper()}"
                depths = ", ".join(f"{n} {self.depth(n)}" for n in ("uop", "inp", "wgt", "acc"))
                raise ConfigError(
                    f"{what} needs {bits} bits and has {most}: the indices of the buffers are too wide (elements: "
                    f"{depths}); decrease LOG_UOP_BUFF_SIZE, LOG_INP_BUFF_SIZE, LOG_WGT_BUFF_SIZE or "
                    "LOG_ACC_BUFF_SIZE, or increase LOG_BLOCK"
                )

    # -- reading and writing ---------------------------------------------------------------------
    @staticmethod
    def of(keys: Mapping[str, Any], where: str = "configuration") -> Config:
        """The configuration of a table of classic keys."""
        try:
            return Config(**_fields(keys))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Config:
        """The configuration in a JSON file."""
        where = os.fspath(path)
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError as error:
            raise ConfigError(
                f"{where}: the configuration cannot be read: {error.strerror}; set VTA_CONFIG to the path of a JSON "
                "file"
            ) from None
        keys = read_json(text, where, ConfigError)
        if not isinstance(keys, dict):
            raise ConfigError(f'{where}: a configuration is a table of keys: {{"TARGET": "sim", …}}')
        return Config.of(keys, where)

    def keys(self) -> dict[str, Any]:
        """The table of classic keys, those that follow from others included."""
        found: dict[str, Any] = {"TARGET": self.target, "HW_VER": self.version}
        found |= {name: getattr(self, name.lower()) for name in SHAPE}
        if self.log_block_in == self.log_block_out:
            found["LOG_BLOCK"] = self.log_block_in
        found |= _derived(found)
        return found | {name: getattr(self, name.lower()) for name in TIMING}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides what a binary means; the timing model is not part of it."""
        text = " ".join(f"{name}={getattr(self, name.lower())}" for name in SHAPE)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # -- numbers that follow -----------------------------------------------------------------------
    @property
    def batch(self) -> int:
        return 1 << self.log_batch

    @property
    def block_in(self) -> int:
        return 1 << self.log_block_in

    @property
    def block_out(self) -> int:
        return 1 << self.log_block_out

    @property
    def inp_dtype(self) -> str:
        return f"int{1 << self.log_inp_width}"

    @property
    def wgt_dtype(self) -> str:
        return f"int{1 << self.log_wgt_width}"

    @property
    def acc_dtype(self) -> str:
        return f"int{1 << self.log_acc_width}"

    @property
    def out_dtype(self) -> str:
        return self.inp_dtype

    def _element_bytes(self, name: str) -> int:
        numbers = {
            "uop": 1,
            "inp": self.batch * self.block_in,
            "wgt": self.block_out * self.block_in,
            "acc": self.batch * self.block_out,
        }[name]
        return numbers * (MICRO_OP_BITS if name == "uop" else 1 << getattr(self, f"log_{name}_width")) // 8

    def depth(self, name: str) -> int:
        """The number of elements of the buffer uop, inp, wgt or acc."""
        return (1 << getattr(self, f"log_{name}_buff_size")) // self._element_bytes(name)

    @cached_property
    def memories(self) -> dict[str, Memory]:
        """The memories of LOAD and STORE by name; out and acc8 are acc, with numbers as they are in DRAM."""
        inp, wgt = (self.batch, self.block_in), (self.block_out, self.block_in)
        acc, depth = (self.batch, self.block_out), self.depth("acc")
        out = self._element_bytes("acc") * (1 << self.log_inp_width) // (1 << self.log_acc_width)
        return {
            "uop": Memory("uop", "uint32", (), self.depth("uop"), self._element_bytes("uop")),
            "wgt": Memory("wgt", self.wgt_dtype, wgt, self.depth("wgt"), self._element_bytes("wgt")),
            "inp": Memory("inp", self.inp_dtype, inp, self.depth("inp"), self._element_bytes("inp")),
            "acc": Memory("acc", self.acc_dtype, acc, depth, self._element_bytes("acc")),
            "out": Memory("out", self.out_dtype, acc, depth, out),
            "acc8": Memory("acc8", self.out_dtype, acc, depth, out),
        }

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The fields of each instruction, and of a micro-op."""
        return layouts({name: self.depth(name).bit_length() - 1 for name in ("uop", "inp", "wgt", "acc")})


def current_config() -> Config:
    """The configuration in the file that $VTA_CONFIG names; the classic one if it is not set."""
    path = os.environ.get("VTA_CONFIG")
    return Config.read(path) if path else Config()


def _derived(keys: Mapping[str, Any]) -> dict[str, int]:
    return {
        "LOG_OUT_WIDTH": keys["LOG_INP_WIDTH"],
        "LOG_OUT_BUFF_SIZE": keys["LOG_ACC_BUFF_SIZE"] + keys["LOG_INP_WIDTH"] - keys["LOG_ACC_WIDTH"],
    }


def _fields(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Config` in a table of keys; refuses unknown, missing and contradictory keys."""
    known = [*_TEXTS, "LOG_BLOCK", *SHAPE, *_DERIVED, *TIMING]
    for name in keys:
        if name not in known:
            raise ConfigError(f"unknown key {name!r}{near_matches(str(name), known)}")
    for name in _TEXTS:
        if name in keys and not isinstance(keys[name], str):
            raise ConfigError(f"{name}={keys[name]!r}: a text is expected, such as {_TEXTS[name]!r}")
    given = dict(keys)
    if "LOG_BLOCK" in keys:
        _check_number("LOG_BLOCK", keys["LOG_BLOCK"], _BLOCK)
    for name in ("LOG_BLOCK_IN", "LOG_BLOCK_OUT"):
        if "LOG_BLOCK" in keys and given.setdefault(name, keys["LOG_BLOCK"]) != keys["LOG_BLOCK"]:
            raise ConfigError(
                f"{name}={given[name]} contradicts LOG_BLOCK={keys['LOG_BLOCK']}; give LOG_BLOCK, or LOG_BLOCK_IN "
                "and LOG_BLOCK_OUT"
            )
    missing = [name for name in (*_TEXTS, *SHAPE) if name not in given]
    if missing:
        name, key = missing[0], SHAPE.get(missing[0])
        if name == "LOG_BLOCK_IN" and "LOG_BLOCK_OUT" in missing:
            name, key = "LOG_BLOCK", _BLOCK
        raise ConfigError(
            f"the key {name} is missing; add it"
            + ("" if key is None else f" ({key.meaning}, as a logarithm to base 2)")
        )
    for name in SHAPE:
        _check_number(name, given[name], SHAPE[name])
    for name, value in _derived(given).items():
        if name in given and given[name] != value:
            raise ConfigError(
                f"{name}={given[name]!r} contradicts the other keys, by which it is {value}; leave it out"
            )
    arguments = {name.lower(): given[name] for name in (*SHAPE, *TIMING) if name in given}
    return arguments | {"target": given["TARGET"], "version": given["HW_VER"]}


def _check_number(name: str, value: Any, key: Key) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not key.low <= value <= key.high:
        meaning = key.meaning + ("" if name in TIMING else ", as a logarithm to base 2")
        raise ConfigError(
            f"{name}={value!r}: a whole number from {key.low} to {key.high} is expected ({meaning})"
        )


def _list(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}"
