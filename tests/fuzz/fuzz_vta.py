"""Programs for the example accelerator: files, and code that the simulator runs."""

from __future__ import annotations

import random
from functools import lru_cache

from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright.error import TVMError
from tilewright.runtime.accelerator import Address, Command
from tilewright.runtime.seal import sealed
from tilewright.vta import isa
from tilewright.vta.binary import Argument, Code, Function, Program, Relocation
from tilewright.vta.config import Config
from tilewright.vta.device import Dram
from tilewright.vta.driver import encode_commands
from tilewright.vta.layout import ALU_OPS, MEMORIES
from tilewright.vta.simulator import Simulator

_CONFIG = Config(log_uop_buff_size=6, log_inp_buff_size=8, log_wgt_buff_size=11, log_acc_buff_size=10)
_SEAL = len(sealed(b""))


def _program() -> Program:
    load = {"memory": "inp", "sram": 0, "dram": Address(0, 0), "rows": 1, "columns": 4, "stride": 4}
    gemm = {"acc": 0, "loops": ((4, 1, 1, 0), (2, 4, 0, 1))}
    code = encode_commands([Command(1, "load", load, (), (2,)), Command(2, "gemm", gemm, (1,))], _CONFIG)
    program = Program(_CONFIG)
    program.add(Function("f", (Argument("x", "int8", (4, 16), "in"),), code))
    return program


@fuzzer("vta_files", seconds=10, short=200)
def vta_files(rng: random.Random) -> str:
    """Damaged files of programs, some of them sealed again, are refused by an error of ours, or read."""
    data = _program().encode()
    data = sealed(damaged(rng, data[:-_SEAL])) if rng.randrange(3) else damaged(rng, data)
    try:
        Program.decode(data, _CONFIG).text()
    except TVMError as error:
        return refused(error)
    return "read"


@lru_cache(None)
def _simulator() -> Simulator:
    return Simulator(_CONFIG, Dram(1 << 20))


@fuzzer("vta_code", seconds=20, short=100)
def vta_code(rng: random.Random) -> str:
    """Random instructions end, are refused by name, or are a deadlock that is found; memory is never left."""
    sim, made = _simulator(), []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.choice(["load", "store", "gemm", "alu"])
        names = (
            rng.choice((("out", "acc"), tuple(MEMORIES)))
            if kind == "store"
            else ("inp", "wgt", "acc", "uop", "out")
        )
        values = {
            f.name: rng.randint(0, min(f.high, rng.choice((0, 1, 1, 2, 4, rng.choice((4, f.high))))))
            for f in _CONFIG.layouts[kind]
            if f.name != "opcode"
        }
        values |= {flag: int(rng.randrange(16) == 0) for flag in isa.FLAGS}
        values |= {"memory": MEMORIES[rng.choice(names)]} if "memory" in values else {}
        values |= {"op": rng.choice(list(ALU_OPS.values()))} if "op" in values else {}
        values |= {"dram": rng.randrange(3)} if "dram" in values and rng.randrange(8) else {}
        if kind in ("gemm", "alu"):  # a run of 2**28 iterations ends too, but not soon
            values |= {"outer": min(values["outer"], 50), "inner": min(values["inner"], 50)}
        made.append(isa.CLASSES[kind](**values))
    made.append(isa.Finish())
    relocations = tuple(Relocation(n, 0) for n, i in enumerate(made) if isinstance(i, (isa.Load, isa.Store)))
    address = sim.dram.allocate(4096)
    try:
        sim.run(Code(tuple(made), (), relocations), [address])
    except TVMError as error:
        return refused(error)
    finally:
        sim.dram.release(address)
    return "ran"
