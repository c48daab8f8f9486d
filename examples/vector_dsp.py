"""A chip of one's own in one file: a vector DSP with a scratchpad that programs manage, and without a matrix unit.

    DRAM ──▶ dma_in ──▶ ┌───────────────────────────┐ ──▶ dma_out ──▶ DRAM
                        │ scratchpad, 64 KiB float32 │
                        └──────▲──────────────┬──────┘
                               └── vector ◀───┘      dst[i] = a[i] op b[i], 8 elements a cycle

The description comes first, then the fields of its instructions, then its simulator; all else is tilewright's. A
vector instruction has three addresses, a length and a repeat count, and a stride for each address along both:
a stride of 0 broadcasts an operand, or accumulates into one element.

    python examples/vector_dsp.py
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay, te
from tilewright.accelerators import (
    DRAM,
    PIPELINE,
    Accelerator,
    Backend,
    Command,
    DramPort,
    Engine,
    EngineModel,
    Issued,
    Place,
    Scope,
    SimulatedMemory,
    Trace,
    Transfer,
    VectorUnit,
    Work,
    build_engines,
    register,
    register_device_api,
    simulate,
)
from tilewright.contrib import graph_executor

# ---------------------------------------------------------------------------- the chip
SPAD = "local.scratchpad"
DMA_IN, VECTOR, DMA_OUT = 1, 2, 3
ENGINES = (Engine("dma_in", DMA_IN), Engine("vector", VECTOR), Engine("dma_out", DMA_OUT))
LANES = 8  # elements in a cycle
DSP = Accelerator(
    name="dsp",
    scopes=(Scope(SPAD, "spad", 64 << 10, "float32", 1),),
    engines=ENGINES,
    tokens=frozenset((a.number, b.number) for a in ENGINES for b in ENGINES if a is not b),
    transfers=(Transfer("dma_in", DMA_IN, DRAM, SPAD), Transfer("dma_out", DMA_OUT, SPAD, DRAM)),
    vector_units=(
        VectorUnit(
            "vector",
            VECTOR,
            SPAD,
            {x: x for x in ("add", "sub", "mul", "min", "max", "copy", "fill")} | {"multiply_add": "fma"},
            immediate=32,
            loops=2,
            cycles=(1 / LANES, 1 / LANES),
            depth=6,
        ),
    ),
    port=DramPort(bytes_per_cycle=16, latency=40, row=2),
    clock=500e6,
)


# ---------------------------------------------------------------------------- the fields of its instructions
def encode(c: Issued) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a command."""
    if c.name != "vector":
        _, _, inside, outside, rows, columns, stride, *_ = c.operands
        return c.name, {
            "spad": inside.at, "dram": outside.at, "rows": rows, "columns": columns, "stride": stride,
        }  # fmt: skip
    op, *operands = c.operands
    counts = (1,) * (2 - len(c.extents)) + c.extents
    fields: dict[str, Any] = {"op": op, "repeat": counts[0], "length": counts[1]}
    for name, x in zip(("dst", "a", "b"), operands, strict=True):
        if isinstance(x, Place):
            fields[name] = (x.at, *(0,) * (2 - len(x.strides)), *x.strides)
        else:
            fields[name] = x
    return c.name, fields


# ---------------------------------------------------------------------------- the simulator
_OPERATIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
MODEL = EngineModel(
    {e.number: e.name for e in ENGINES},
    bytes_per_cycle=DSP.port.bytes_per_cycle,
    latency=DSP.port.latency,
    row_cycles=DSP.port.row,
)


class Simulator:
    """The DSP in cycles; `last` is the trace of the last run."""

    def __init__(self) -> None:
        self.last: Trace | None = None

    def run(self, commands: list[Command], arrays: list[Any]) -> float:
        """Run a program on arrays; returns seconds."""
        spad = np.full(DSP.scopes[0].elements, np.nan, np.float32)  # a read before a write is seen
        dram = [_memory(a) for a in arrays]
        self.last = simulate([self.work(c, spad, dram) for c in commands], MODEL)
        return self.last.cycles / DSP.clock

    def work(self, c: Command, spad: np.ndarray, dram: list[np.ndarray]) -> Work:
        """A command as the engines see it."""
        made = Work(c.engine, str(c), pops=c.pops, pushes=c.pushes)
        f = c.fields
        if c.name == "nop":
            return made
        if c.name == "vector":
            cycles = DSP.vector_units[0].depth + f["repeat"] * -(-f["length"] // LANES)
            return made._replace(cycles=cycles, execute=lambda: _compute(f, spad))
        nbytes = f["rows"] * f["columns"] * 4
        here = f["spad"] + np.arange(f["rows"] * f["columns"])
        rows = np.arange(f["rows"])[:, None] * f["stride"] + np.arange(f["columns"])
        there = f["dram"].offset // 4 + rows.ravel()
        memory = dram[f["dram"].argument]
        if c.name == "dma_in":
            execute = lambda: spad.__setitem__(here, memory[there])
            return made._replace(read=nbytes, rows=f["rows"], execute=execute)
        execute = lambda: memory.__setitem__(there, spad[here])
        return made._replace(written=nbytes, rows=f["rows"], execute=execute)


def _memory(a: Any) -> np.ndarray:
    """The elements of an array in the DRAM of the simulated DSP."""
    return np.ctypeslib.as_array((ctypes.c_float * a.size).from_address(a.data_ptr))


def _compute(f: Any, spad: np.ndarray) -> None:
    """A vector instruction; elements are computed one after the other, as far as one can tell."""
    repeat, length = np.arange(f["repeat"])[:, None], np.arange(f["length"])

    def at(place: tuple[int, int, int]) -> np.ndarray:
        return (place[0] + repeat * place[1] + length * place[2]).ravel()

    def value(x: Any) -> Any:
        return spad[at(x)] if isinstance(x, tuple) else np.float32(x)

    dst, op = at(f["dst"]), f["op"]
    if op == "fill":
        spad[dst] = np.float32(f["b"])
    elif op == "copy":
        spad[dst] = value(f["a"])
    elif op == "fma":
        np.add.at(spad, dst, value(f["a"]) * value(f["b"]))
    elif f["a"] == f["dst"]:
        _OPERATIONS[op].at(spad, dst, value(f["b"]))
    else:
        spad[dst] = _OPERATIONS[op](value(f["a"]), value(f["b"]))


SIMULATOR = Simulator()
DEVICE = register_device_api("dsp", SimulatedMemory("dsp", SIMULATOR.run), number=64)
BACKEND = register(
    Backend(
        name="dsp",
        device_type=DEVICE.device_type,
        family="accelerator",
        pipeline=PIPELINE,
        chip=lambda target: DSP,
        generate=lambda mod, same, target: build_engines(mod, target, encode, SIMULATOR.run),
        executor="device",
        measurable=True,
    )
)


# ---------------------------------------------------------------------------- programs, scheduled by hand
def _engine(s: Any, t: Any, at: tuple[Any, Any], pragma: str) -> None:
    """Compute a stage in the scratchpad for each iteration of a loop, into one of two tiles in turns."""
    s[t].compute_at(s[at[0]], at[1])
    s[t].pragma(s[t].op.axis[0], pragma)
    s[t].pragma(s[t].op.axis[0], "buffer_versions", 2)


def vector_add(n: int = 4096, tile: int = 512) -> tuple[Any, list[Any]]:
    """C = A + B, tile by tile."""
    a, b = (te.placeholder((n,), name=name) for name in "AB")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    held = s.cache_write(c, SPAD)
    outer, inner = s[c].split(s[c].op.axis[0], factor=tile)
    s[c].pragma(inner, "dma_copy")
    _engine(s, held, (c, outer), "vector_unit")
    for t in (a, b):
        _engine(s, s.cache_read(t, SPAD, [held]), (c, outer), "dma_copy")
    return s, [a, b, c]


def _reduced(inputs: list[Any], out: Any, rows: int, columns: int) -> tuple[Any, list[Any]]:
    """A reduction of rows, in blocks of rows and columns; its partial results stay in the scratchpad."""
    s = te.create_schedule(out.op)
    held = s.cache_write(out, SPAD)
    outer, inner = s[out].split(s[out].op.axis[0], factor=rows)
    s[out].pragma(inner, "dma_copy")
    s[held].compute_at(s[out], outer)
    (i,), (k,) = s[held].op.axis, s[held].op.reduce_axis
    ko, ki = s[held].split(k, factor=columns)
    s[held].reorder(ko, i, ki)
    s[held].pragma(i, "vector_unit")
    for t in inputs:
        _engine(s, s.cache_read(t, SPAD, [held]), (held, ko), "dma_copy")
    return s, [*inputs, out]


def row_sums(m: int = 64, n: int = 512, rows: int = 16, columns: int = 128) -> tuple[Any, list[Any]]:
    """The sum of each row."""
    a, k = te.placeholder((m, n), name="A"), te.reduce_axis((0, n), "k")
    out = te.compute((m,), lambda i: te.sum(a[i, k], axis=[k]), name="sums")
    return _reduced([a], out, rows, columns)


def matrix_vector(m: int = 64, n: int = 512, rows: int = 16, columns: int = 128) -> tuple[Any, list[Any]]:
    """y = A x, by multiply-accumulate instructions."""
    a, x = te.placeholder((m, n), name="A"), te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), "k")
    y = te.compute((m,), lambda i: te.sum(a[i, k] * x[k], axis=[k]), name="y")
    return _reduced([a, x], y, rows, columns)


# ---------------------------------------------------------------------------- all of it
def network() -> Any:
    """A graph: the DSP computes the first operators, the host the softmax."""
    x, y = (relay.var(name, shape=(1, 8, 16, 16)) for name in "xy")
    z = relay.nn.relu(relay.multiply(x, relay.const(0.5)) + y)
    pooled = relay.nn.max_pool2d(z, pool_size=(2, 2), strides=(2, 2))
    return tvm.IRModule.from_expr(relay.Function([x, y], relay.nn.softmax(relay.reshape(pooled, (1, 512)))))


def run_network(target: str, device: Any, inputs: list[np.ndarray]) -> tuple[Any, np.ndarray]:
    """The compiled network, and its result."""
    lib = relay.build(network(), target=target)
    executor = graph_executor.GraphModule(lib["default"](device))
    for name, value in zip("xy", inputs, strict=True):
        executor.set_input(name, value)
    executor.run()
    return lib, executor.get_output(0).numpy()


def main() -> None:
    rng = np.random.default_rng(0)
    expected = {
        "vector_add": lambda a, b: a + b,
        "row_sums": lambda a: a.sum(1),
        "matrix_vector": lambda a, x: a @ x,
    }
    print("cycles, and the share of them in which the vector engine is busy:")
    for program in (vector_add, row_sums, matrix_vector):
        s, args = program()
        arrays = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in args]
        by_hand = tvm.build(s, args, target="dsp")
        scheduled = tvm.build(tvm.auto_schedule(te.create_prim_func(args), "dsp").mod, target="dsp")
        for how, module in (("by hand", by_hand), ("by auto_schedule", scheduled)):
            module(*arrays)
            name, last = program.__name__, SIMULATOR.last
            np.testing.assert_allclose(arrays[-1], expected[name](*arrays[:-1]), rtol=1e-4, atol=1e-4)
            print(f"  {name:14} {how:17} {last.cycles:6} {last.utilisation(VECTOR):6.1%}")
    print("\na part of the program in C:")
    print("\n".join(by_hand.get_source("c").splitlines()[20:26]))
    inputs = [rng.standard_normal((1, 8, 16, 16)).astype("float32") for _ in "xy"]
    lib, got = run_network("dsp", DEVICE, inputs)
    np.testing.assert_array_equal(got, run_network("llvm", tvm.cpu(), inputs)[1])
    print("\nthe network computes on the DSP and the host what it computes on the host alone:")
    print("\n".join(f"  {line}" for line in lib.explain().splitlines() if not line.startswith(" ")))


if __name__ == "__main__":
    main()
