"""A chip described in one file outside the package: programs by hand and scheduled, a graph, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
import tiny_chip
from vector_dsp import example

import tilewright as tvm
from tilewright import relay, te
from tilewright.accelerators import CommandModule, SimulatedMemory, register_device_api
from tilewright.contrib import graph_executor
from tilewright.ir.errors import LoweringError
from tilewright.runtime.errors import LoadError
from tilewright.target import Target
from tilewright.tir.interpret import interpret

dsp = example()
EXAMPLE = Path(__file__).parents[2] / "examples" / "vector_dsp.py"


def arrays_for(args: list[Any], seed: int = 0) -> list[np.ndarray]:
    """Random whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-9, 9, [int(n) for n in t.shape]).astype("float32") for t in args]


def test_the_chip_has_less_than_300_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 300


SMALL = {
    "vector_add": lambda: dsp.vector_add(n=64, tile=16),
    "row_sums": lambda: dsp.row_sums(m=8, n=32, rows=4, columns=8),
    "matrix_vector": lambda: dsp.matrix_vector(m=8, n=32, rows=4, columns=8),
}


@pytest.mark.parametrize("name", SMALL)
def test_programs_by_hand(name: str) -> None:
    s, args = SMALL[name]()
    arrays = arrays_for(args)
    expected = [a.copy() for a in arrays]
    interpret(te.create_prim_func(args), *expected)
    tvm.build(s, args, target="dsp")(*arrays)
    np.testing.assert_array_equal(arrays[-1], expected[-1])
    assert dsp.SIMULATOR.last.tokens_left == {}


@pytest.mark.parametrize("name", SMALL)
def test_programs_need_each_of_their_tokens(name: str) -> None:
    s, args = SMALL[name]()
    with Target("dsp"):
        func = tvm.lower(s, args)["main"]
    arrays = arrays_for(args)
    expected = [a.copy() for a in arrays]
    interpret(te.create_prim_func(args), *expected)
    got = tiny_chip.outcome(func, arrays)
    assert isinstance(got, np.ndarray), got
    np.testing.assert_array_equal(got, expected[-1])
    noticed = [tiny_chip.outcome(weaker, arrays) for _, weaker in tiny_chip.weakened(func)]
    assert len(noticed) >= 4 and all(isinstance(fault, str) for fault in noticed)


def test_transfers_are_hidden_behind_each_other() -> None:
    """With two versions of its tiles the time of a vector addition is that of the DRAM port, and a rest."""
    s, args = dsp.vector_add()
    tvm.build(s, args, target="dsp")(*arrays_for(args))
    last = dsp.SIMULATOR.last
    assert last.bytes_read == 2 * 4096 * 4 and last.bytes_written == 4096 * 4
    assert last.port_cycles >= 0.85 * last.cycles


def broadcast() -> list[Any]:
    a, b = te.placeholder((20, 24), name="A"), te.placeholder((24,), name="B")
    scaled = te.compute((20, 24), lambda i, j: a[i, j] * te.const(2, "float32") + b[j], name="scaled")
    return [a, b, te.compute((20, 24), lambda i, j: te.max(scaled[i, j], te.const(0, "float32")), name="out")]


def product() -> list[Any]:
    a, b, k = (
        te.placeholder((12, 16), name="A"),
        te.placeholder((16, 20), name="B"),
        te.reduce_axis((0, 16), "k"),
    )
    return [a, b, te.compute((12, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="out")]


def pooling() -> list[Any]:
    a = te.placeholder((4, 8, 8), name="A")
    y, x = te.reduce_axis((0, 2), "y"), te.reduce_axis((0, 2), "x")
    return [
        a,
        te.compute((4, 4, 4), lambda c, i, j: te.max(a[c, 2 * i + y, 2 * j + x], axis=[y, x]), name="out"),
    ]


@pytest.mark.parametrize(
    "args", [broadcast, product, pooling, *(lambda n=n: SMALL[n]()[1] for n in SMALL)],
    ids=["broadcast", "product", "pooling", *SMALL],
)  # fmt: skip
def test_auto_schedule(args: Any) -> None:
    given = args()
    func = te.create_prim_func(given)
    sch = tvm.auto_schedule(func, "dsp")
    arrays = arrays_for(given)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected)
    tvm.build(sch.mod, target="dsp")(*arrays)
    np.testing.assert_array_equal(arrays[-1], expected[-1])


@pytest.mark.parametrize("name", ["vector_add", "row_sums", "matrix_vector"])
def test_schedules_without_a_trial_are_as_fast_as_those_by_hand(name: str) -> None:
    s, args = getattr(dsp, name)()
    cycles = []
    for module in (
        tvm.build(s, args, target="dsp"),
        tvm.build(tvm.auto_schedule(te.create_prim_func(args), "dsp").mod, target="dsp"),
    ):
        module(*arrays_for(args))
        cycles.append(dsp.SIMULATOR.last.cycles)
    assert cycles[1] <= cycles[0]


# ---------------------------------------------------------------------------- graphs
@pytest.mark.slow
def test_a_graph_is_partitioned_between_the_dsp_and_the_host() -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((1, 8, 16, 16)).astype("float32") for _ in "xy"]
    lib, got = dsp.run_network("dsp", dsp.DEVICE, inputs)
    np.testing.assert_array_equal(got, dsp.run_network("llvm", tvm.cpu(), inputs)[1])
    where = [line for line in lib.explain().splitlines() if not line.startswith(" ")]
    assert where == [
        "fused_multiply_add_nn_relu: dsp",
        "fused_nn_max_pool2d: dsp",
        "fused_nn_softmax: the host, between copies: dsp does not compute it",
    ]


def test_an_exported_model_runs_on_the_dsp(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x - relay.const(0.25))))
    lib = relay.build(mod, target="dsp")
    needs.skip_without("linker")
    lib.export_library(str(tmp_path / "model.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "model.so"))
    executor = graph_executor.GraphModule(loaded["default"](dsp.DEVICE))
    value = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype("float32")
    executor.set_input("x", value)
    dsp.SIMULATOR.last = None
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.maximum(value - np.float32(0.25), 0))
    assert dsp.SIMULATOR.last is not None


def test_programs_as_data() -> None:
    s, args = SMALL["vector_add"]()
    module = tvm.build(s, args, target="dsp")
    again = CommandModule.decode(module.encoded(), dsp.SIMULATOR.run, dsp.DEVICE)
    assert again.program == module.program
    arrays = arrays_for(args)
    again(*arrays)
    np.testing.assert_array_equal(arrays[2], arrays[0] + arrays[1])
    held = json.loads(module.encoded())
    del held["functions"]
    for damaged, why in ((module.encoded()[:-9], "Expecting"), (json.dumps(held).encode(), "'functions'")):
        with pytest.raises(
            LoadError, match=f"^a program for dsp is damaged \\({why}.*; build and export it again$"
        ):
            CommandModule.decode(damaged, dsp.SIMULATOR.run, dsp.DEVICE)


def test_a_new_kind_of_device_needs_a_number_that_is_free() -> None:
    api = SimulatedMemory("other_dsp", dsp.SIMULATOR.run)
    for number in (None, 2, 128):
        with pytest.raises(
            ValueError, match=f"device kind 'other_dsp' is new and needs a number .*, not {number};"
        ):
            register_device_api("other_dsp", api, number)
    assert tvm.device("dsp") == dsp.DEVICE and str(dsp.DEVICE) == "dsp(0)"


# ---------------------------------------------------------------------------- refusals
def refusal(s: Any, args: list[Any]) -> str:
    with pytest.raises(LoweringError) as told:
        tvm.build(s, args, target="dsp")
    return str(told.value).partition("\nin pass")[0]


def staged(
    compute: Any, n: int = 32, dtype: str = "float32", mark: str = "vector_unit"
) -> tuple[Any, list[Any]]:
    """A stage in the scratchpad between two transfers."""
    a = te.placeholder((n,), dtype, name="A")
    out = te.compute((n,), lambda i: compute(a, i), name="out")
    s = te.create_schedule(out.op)
    held = s.cache_write(out, dsp.SPAD)
    read = s.cache_read(a, dsp.SPAD, [held])
    for t in (out, read):
        s[t].pragma(s[t].op.axis[0], "dma_copy")
    if mark:
        s[held].pragma(s[held].op.axis[0], mark)
    return s, [a, out]


def test_a_tile_that_does_not_fit() -> None:
    assert refusal(*dsp.vector_add(n=1 << 16, tile=1 << 13)) == (
        "memory local.scratchpad of dsp has 65536 bytes, and the buffers that are live at once need 131072:\n"
        "\n"
        "  | B_local_scratchpad      65536 bytes  16384 float32\n"
        "  | A_local_scratchpad      65536 bytes  16384 float32\n"
        "\n"
        "  hint: use smaller tiles, fewer virtual threads, or compute a stage in the tile of its consumer"
    )


def test_an_operation_without_an_instruction() -> None:
    assert refusal(*staged(lambda a, i: te.exp(a[i]))) == (
        "vector unit of dsp: it has no instruction for `T.exp(A_local_scratchpad[i])`\n"
        "\n"
        '  | out_local_scratchpad = T.Buffer((32,), scope="local.scratchpad")\n'
        '  | A_local_scratchpad = T.Buffer((32,), scope="local.scratchpad")\n'
        "  | for i in range(32):\n"
        "  |     out_local_scratchpad[i] = T.exp(A_local_scratchpad[i])\n"
        "\n"
        "  hint: the unit computes: add, copy, fill, max, min, mul, multiply_add, sub; leave this stage to the host"
    )


def test_a_statement_without_an_engine() -> None:
    assert refusal(*staged(lambda a, i: a[i] + a[i], mark="")) == (
        "dsp: the commands of the engines must be known before the program runs: a statement is not a command of an "
        "engine\n"
        "  | spad[i + 32] = spad[i] + spad[i]\n"
        "  hint: mark the stage for an engine, or let the host compute it"
    )


def test_a_type_that_the_scratchpad_does_not_hold() -> None:
    assert refusal(*staged(lambda a, i: a[i] + 1, dtype="int32")) == (
        "copy of A to A_local_scratchpad: A_local_scratchpad has type int32, but the elements of local.scratchpad are "
        "float32\n"
        "  hint: compute it as float32"
    )


def test_a_transfer_that_does_not_pad() -> None:
    a = te.placeholder((30,), name="A")
    padded = te.compute(
        (32,), lambda i: te.if_then_else(te.all(i >= 1, i < 31), a[i - 1], te.const(0, "float32")), "P"
    )
    out = te.compute((32,), lambda i: padded[i], name="out")
    s = te.create_schedule(out.op)
    s[padded].set_scope(dsp.SPAD)
    for t in (padded, out):
        s[t].pragma(s[t].op.axis[0], "dma_copy")
    assert refusal(s, [a, out]) == (
        "copy of A to P: the instruction dma_in does not pad\n  hint: pad in a stage of its own"
    )
