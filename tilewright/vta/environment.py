"""The classic face of a configured chip: `vta.get_env()`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from ..ir.expr import StringImm
from ..target import Target
from ..target.accelerator import Accelerator
from ..te import thread_axis
from .chip import chip as describe
from .config import Config, current_config
from .intrin import ACC, INP, WGT, gemm
from .isa import COMPUTE_ENGINE, LOAD_ENGINE, STORE_ENGINE
from .layout import ALU_OPS, MEMORIES


class DevContext:
    """The numbers of memories, operations and engines in instructions, under their classic names."""

    MEM_ID_UOP, MEM_ID_WGT, MEM_ID_INP = MEMORIES["uop"], MEMORIES["wgt"], MEMORIES["inp"]
    MEM_ID_ACC, MEM_ID_OUT, MEM_ID_ACC_8BIT = MEMORIES["acc"], MEMORIES["out"], MEMORIES["acc8"]
    ALU_OPCODE_MIN, ALU_OPCODE_MAX, ALU_OPCODE_ADD = ALU_OPS["min"], ALU_OPS["max"], ALU_OPS["add"]
    ALU_OPCODE_SHR, ALU_OPCODE_MUL = ALU_OPS["shr"], ALU_OPS["mul"]
    QID_LOAD_INP = QID_LOAD_WGT = LOAD_ENGINE
    QID_LOAD_OUT = QID_COMPUTE = COMPUTE_ENGINE
    QID_STORE_OUT = STORE_ENGINE

    def __init__(self, env: Environment) -> None:
        self.vta_axis = thread_axis("vta")
        self.vta_push_uop = StringImm("VTAPushGEMMOp")
        self.gemm = gemm(env, env.mock_mode)

    def get_task_qid(self, qid: int) -> int:
        """The engine of a queue."""
        return qid


class Environment:
    """A configuration of the chip, with the classic names of its sizes.

        with vta.Environment({"TARGET": "sim", "LOG_BLOCK": 5, …}):
            env = vta.get_env()

    `cfg` is a table of the classic JSON keys, or a `Config`.
    """

    current: ClassVar[Environment | None] = None
    MAX_XFER: ClassVar[int] = 1 << 22
    DEBUG_DUMP_INSN: ClassVar[int] = 1 << 1
    DEBUG_DUMP_UOP: ClassVar[int] = 1 << 2
    DEBUG_SKIP_READ_BARRIER: ClassVar[int] = 1 << 3
    DEBUG_SKIP_WRITE_BARRIER: ClassVar[int] = 1 << 4
    inp_scope: ClassVar[str] = INP
    wgt_scope: ClassVar[str] = WGT
    acc_scope: ClassVar[str] = ACC

    def __init__(self, cfg: Mapping[str, Any] | Config) -> None:
        self.config = config = cfg if isinstance(cfg, Config) else Config.of(cfg)
        for key, value in config.keys().items():
            setattr(self, key, value)
        self.BATCH, self.BLOCK_IN, self.BLOCK_OUT = config.batch, config.block_in, config.block_out
        self.acc_dtype, self.inp_dtype = config.acc_dtype, config.inp_dtype
        self.wgt_dtype, self.out_dtype = config.wgt_dtype, config.out_dtype
        for name in ("INP", "WGT", "ACC", "OUT"):
            memory = config.memories[name.lower()]
            setattr(self, f"{name}_WIDTH", int(memory.dtype.removeprefix("u").removeprefix("int")))
            setattr(self, f"{name}_BUFF_SIZE", memory.depth * memory.element_bytes)
            setattr(self, f"{name}_ELEM_BYTES", memory.element_bytes)
            setattr(self, f"{name}_ELEM_BITS", memory.element_bytes * 8)
        self.UOP_BUFF_SIZE = 1 << config.log_uop_buff_size
        self.mock_mode = False
        self._outside: list[Environment | None] = []

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the environment of the chip has no attribute {name!r}")

    def __enter__(self) -> Environment:
        self._outside.append(Environment.current)
        Environment.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Environment.current = self._outside.pop()

    @property
    def cfg_dict(self) -> dict[str, Any]:
        """The table of keys."""
        return self.config.keys()

    @property
    def chip(self) -> Accelerator:
        """The chip as lowering sees it."""
        return describe(self.config)

    @cached_property
    def dev(self) -> DevContext:
        """The numbers in instructions, and the intrinsic."""
        return DevContext(self)

    @cached_property
    def mock(self) -> Environment:
        """The same chip with pragmas and an intrinsic that do nothing, to time a part of a program."""
        if self.mock_mode:
            return self
        made = copy.copy(self)
        made.__dict__.pop("dev", None)
        made.mock_mode = True
        return made

    @property
    def dma_copy(self) -> str:
        """The pragma of a stage that a DMA transfer copies."""
        return "skip_dma_copy" if self.mock_mode else "dma_copy"

    @property
    def alu(self) -> str:
        """The pragma of a stage that the ALU computes."""
        return "skip_alu" if self.mock_mode else "alu"

    @property
    def gemm(self) -> Any:
        """The intrinsic of the matrix unit, for `s[…].tensorize`."""
        return self.dev.gemm

    @property
    def BITSTREAM(self) -> str:
        """The name of the configuration: its sizes, as they would be synthesized."""
        c = self.config
        sizes = f"{c.batch}x{c.block_in}x{c.block_out}_{self.INP_WIDTH}b{self.WGT_WIDTH}b{self.ACC_WIDTH}b"
        logs = (c.log_uop_buff_size, c.log_inp_buff_size, c.log_wgt_buff_size, c.log_acc_buff_size)
        return f"{sizes}_{'_'.join(map(str, logs))}"

    @property
    def MODEL(self) -> str:
        return f"{self.config.target}_{self.BITSTREAM}"

    @property
    def target(self) -> Target:
        """The target of programs for the chip."""
        from ..target import vta

        self.config.check_target()
        return vta(model=self.MODEL)

    @property
    def target_host(self) -> str:
        """The target of the host's part."""
        boards = {"pynq": "armv7-none-linux-gnueabihf", "de10nano": "armv7-none-linux-gnueabihf"}
        triple = {**boards, "ultra96": "aarch64-linux-gnu"}.get(self.config.target)
        return "llvm" if triple is None else f"llvm -mtriple={triple}"

    @property
    def target_vta_cpu(self) -> Target:
        """The processor beside the chip."""
        self.config.check_target()
        return Target(f"{self.target_host} -keys=arm_cpu,cpu -device=arm_cpu")


def get_env() -> Environment:
    """The current environment: the innermost `with vta.Environment(…)`, else the one of $VTA_CONFIG or the default."""
    if Environment.current is None:
        Environment.current = Environment(current_config())
    return Environment.current
