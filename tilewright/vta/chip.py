"""The chip as lowering sees it: memories, engines, transfers, the vector unit; and the commands of its instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from ..backends._accelerator import Issued, Place
from ..ir.errors import BuildError
from ..target.accelerator import DRAM, Accelerator, DramPort, Engine, MatrixUnit, Scope, Transfer, VectorUnit
from .config import Config
from .intrin import ACC, INP, WGT, register_gemm
from .isa import COMPUTE_ENGINE, LOAD_ENGINE, STORE_ENGINE

_OPERATIONS: Final = {"add": "add", "mul": "mul", "min": "min", "max": "max", "shift_right": "shr"}


@cache
def chip(config: Config) -> Accelerator:
    """The description of a configured chip."""
    inp, wgt, acc = (config.memories[name] for name in ("inp", "wgt", "acc"))

    def scope(name: str, memory: Any) -> Scope:
        lanes = 1
        for n in memory.shape:
            lanes *= n
        reads = config.acc_read_ports if name == ACC else 1
        return Scope(name, memory.name, memory.depth * memory.element_bytes, memory.dtype, lanes, reads)

    return Accelerator(
        name="vta",
        scopes=(scope(INP, inp), scope(WGT, wgt), scope(ACC, acc)),
        engines=(
            Engine("load", LOAD_ENGINE),
            Engine("compute", COMPUTE_ENGINE),
            Engine("store", STORE_ENGINE),
        ),
        tokens=frozenset({(1, 2), (2, 1), (2, 3), (3, 2)}),
        transfers=(
            Transfer("load", LOAD_ENGINE, DRAM, INP, pads=True),
            Transfer("load", LOAD_ENGINE, DRAM, WGT, pads=True),
            Transfer("load", COMPUTE_ENGINE, DRAM, ACC, pads=True, widens=(config.out_dtype,)),
            Transfer("store", STORE_ENGINE, ACC, DRAM, narrows=(config.out_dtype,)),
        ),
        vector_units=(
            VectorUnit(
                "alu",
                COMPUTE_ENGINE,
                ACC,
                _OPERATIONS,
                immediate=16,
                addresses=2,
                depth=config.alu_depth,
            ),
        ),
        matrix_units=(
            MatrixUnit(
                "gemm",
                COMPUTE_ENGINE,
                INP,
                WGT,
                ACC,
                (config.batch, config.block_out, config.block_in),
                *register_gemm(config),
                config.gemm_depth,
            ),
        ),
        port=DramPort(config.dram_bytes_per_cycle, config.dram_latency, config.dram_row_cycles),
        clock=config.clock_mhz * 1e6,
    )


def encode(issued: Issued, acc_dtype: str = "int32") -> tuple[str, dict[str, Any]]:
    """The name and the fields of a command, as the driver takes them; `acc_dtype` is the type of the accumulators."""
    made = _ENCODERS.get(issued.name)
    if made is None:
        raise BuildError(f"vta has no instruction {issued.name!r}; it has {', '.join(_ENCODERS)}")
    return made(issued, acc_dtype)


def _load(c: Issued, acc_dtype: str) -> tuple[str, dict[str, Any]]:
    memory, dtype, inside, outside, rows, columns, stride, *pad = c.operands
    if memory == "acc" and dtype != acc_dtype:
        memory = "acc8"
    return "load", {
        "memory": memory, "sram": inside.at, "dram": outside.at, "rows": rows, "columns": columns, "stride": stride,
        "pad": tuple(pad),
    }  # fmt: skip


def _store(c: Issued, acc_dtype: str) -> tuple[str, dict[str, Any]]:
    memory, dtype, inside, outside, rows, columns, stride, *_ = c.operands
    return "store", {
        "memory": memory if dtype == acc_dtype else "out", "sram": inside.at, "dram": outside.at, "rows": rows,
        "columns": columns, "stride": stride,
    }  # fmt: skip


def _loops(c: Issued, *operands: Any) -> tuple[tuple[int, ...], ...]:
    """The extent of each loop, and the distance that it moves each operand by."""
    return tuple(
        (n, *(p.strides[i] if isinstance(p, Place) else 0 for p in operands)) for i, n in enumerate(c.extents)
    )


def _gemm(c: Issued, acc_dtype: str) -> tuple[str, dict[str, Any]]:
    reset, *operands = c.operands
    acc, inp, wgt = (p.at if isinstance(p, Place) else 0 for p in operands)
    return "gemm", {"reset": bool(reset), "acc": acc, "inp": inp, "wgt": wgt, "loops": _loops(c, *operands)}


def _alu(c: Issued, acc_dtype: str) -> tuple[str, dict[str, Any]]:
    op, dst, first, second = c.operands
    if isinstance(second, Place):
        if first != dst:
            raise BuildError("vta: the ALU overwrites its first operand, and this one is elsewhere")
        return "alu", {
            "op": op,
            "imm": None,
            "dst": dst.at,
            "src": second.at,
            "loops": _loops(c, dst, second),
        }
    return "alu", {"op": op, "imm": second, "dst": dst.at, "src": first.at, "loops": _loops(c, dst, first)}


_ENCODERS: Final[dict[str, Callable[[Issued, str], tuple[str, dict[str, Any]]]]] = {
    "load": _load,
    "store": _store,
    "gemm": _gemm,
    "alu": _alu,
}
