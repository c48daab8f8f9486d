"""Programs of accelerators as C: compiled, run with a driver that collects, they issue the commands of the program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_chip
from vector_dsp import example

import tilewright as tvm
import tilewright.vta
from tilewright import te, topi
from tilewright.accelerators import Issued, c_program
from tilewright.backends._accelerator import commands_of
from tilewright.ir.errors import BuildError
from tilewright.runtime.errors import TVMError
from tilewright.target import Target
from tilewright.vta.build_module import chip_of_target
from tilewright.vta.chip import encode
from tilewright.vta.driver import encode_commands

pytestmark = pytest.mark.needs("linker")
dsp = example()


def as_issued(c: Issued) -> tuple[str, dict[str, Any]]:
    """All of a command, before a chip gives it its fields."""
    return c.name, {"operands": c.operands, "extents": c.extents}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "program",
    [
        lambda threads: tiny_chip.vector_add(threads=threads),
        lambda threads: tiny_chip.matmul(k=3, threads=threads, residual=True),
        lambda threads: tiny_chip.convolution(size=4, channels=2, threads=threads),
        lambda threads: tiny_chip.max_pool(size=8, threads=threads),
    ],
    ids=["vector add", "product with a residual", "padded convolution", "max pooling"],
)
def test_compiled_c_issues_the_commands_of_the_program(program: Any, threads: int) -> None:
    func = tiny_chip.lowered(*program(threads))
    expected = commands_of(func, tiny_chip.TINY, as_issued)
    made = c_program(tvm.IRModule({"main": func}), tiny_chip.TINY)
    assert made.commands("main", as_issued) == expected
    assert {c.pops for c in expected} != {()}


def convolution() -> list[Any]:
    """A convolution of 32 by 32 channels with a border of zeros, and its conversion to int8."""
    b = 16
    data = te.placeholder((1, 2, 8, 8, 1, b), "int8", "data")
    weight = te.placeholder((2, 2, 3, 3, b, b), "int8", "weight")
    padded = topi.nn.pad(data, [0, 0, 1, 1, 0, 0], name="padded")
    ic, dy, dx, ii = (
        te.reduce_axis((0, n), name) for n, name in ((2, "ic"), (3, "dy"), (3, "dx"), (b, "ii"))
    )
    shape = (1, 2, 8, 8, 1, b)
    conv = te.compute(
        shape,
        lambda n, oc, y, x, i, oo: te.sum(
            padded[n, ic, y + dy, x + dx, i, ii].astype("int32")
            * weight[oc, ic, dy, dx, oo, ii].astype("int32"),
            axis=[ic, dy, dx, ii],
        ),
        name="conv",
    )
    shifted = te.compute(shape, lambda *i: conv(*i) >> 8, name="shifted")
    return [data, weight, te.compute(shape, lambda *i: shifted(*i).astype("int8"), name="out")]


def vector_add() -> list[Any]:
    a, b = (te.placeholder((64, 1, 16), "int32", name) for name in "ab")
    total = te.compute(a.shape, lambda *i: a(*i) + b(*i), name="total")
    return [a, b, te.compute(a.shape, lambda *i: total(*i).astype("int8"), name="out")]


@pytest.mark.parametrize("args", [vector_add, convolution])
@pytest.mark.slow
def test_c_for_vta_is_simulated_to_the_same_result(args: Any) -> None:
    func = te.create_prim_func(args())
    sch = tvm.auto_schedule(func, "ext_dev")
    with Target("ext_dev") as target:
        lowered = tvm.lower(sch.mod)
    chip = chip_of_target(target)
    commands = c_program(lowered, chip).commands("main", encode)
    assert commands == commands_of(lowered["main"], chip, encode)
    module = tvm.build(sch.mod, target="ext_dev")
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-100, 100, a.shape).astype(a.dtype) for a in module.functions["main"]]
    expected, got = [x.copy() for x in arrays], [x.copy() for x in arrays]
    module(*expected)
    code = encode_commands(commands, module.program.config)
    module.program.functions["main"] = module.program.functions["main"]._replace(code=code)
    module(*got)
    np.testing.assert_array_equal(got[-1], expected[-1])


@pytest.mark.parametrize("program", [dsp.vector_add, dsp.row_sums, dsp.matrix_vector])
def test_c_for_the_dsp_is_simulated_to_the_same_result(program: Any) -> None:
    s, args = program()
    with Target("dsp"):
        lowered = tvm.lower(s, args)
    commands = c_program(lowered, dsp.DSP).commands("main", dsp.encode)
    assert commands == commands_of(lowered["main"], dsp.DSP, dsp.encode)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in args]
    held = [tvm.nd.array(a) for a in arrays]
    seconds = dsp.SIMULATOR.run(commands, held)
    module = tvm.build(s, args, target="dsp")
    assert module.call(module.function_names[0], arrays) == seconds
    np.testing.assert_array_equal(held[-1].numpy(), arrays[-1])


def fused() -> tuple[Any, list[Any]]:
    """max(A * 0.1, 0), whose constants are immediate operands."""
    a = te.placeholder((64,), name="A")
    out = te.compute(
        (64,), lambda i: te.max(a[i] * te.const(0.1, "float32"), te.const(0, "float32")), name="out"
    )
    return out, [a, out]


def test_text_of_a_program_and_of_its_driver() -> None:
    _, args = fused()
    sch = tvm.auto_schedule(te.create_prim_func(args), "dsp")
    module = tvm.build(sch.mod, target="dsp")
    source, header = module.get_source("c"), module.get_source("h")
    assert source.startswith('#include "dsp_driver.h"\n')
    body = source[source.index("int32_t run_main") :]
    assert body == (
        "int32_t run_main(int64_t A, int64_t out) {\n"
        "  dsp_dma_in_spad_float32_spad_dram_i7(0, A, 1, 64, 64, 0, 0, 0, 0);\n"
        "  dsp_push(1, 2);\n"
        "  dsp_pop(1, 2);\n"
        "  dsp_loop2(64, 1, 1);\n"
        "  dsp_vector_mul_spad2_f(0, 0, 0.1);\n"
        "  dsp_loop2(64, 1, 1);\n"
        "  dsp_vector_max_spad2_f(0, 0, 0.0);\n"
        "  dsp_push(2, 3);\n"
        "  dsp_pop(2, 3);\n"
        "  dsp_dma_out_spad_float32_spad_dram_i7(0, out, 1, 64, 64, 0, 0, 0, 0);\n"
        "  return 0;\n"
        "}\n"
    )
    assert "void dsp_vector_mul_spad2_f(int32_t spad_0, int32_t spad_1, double f_2);\n" in header
    assert "void dsp_loop2(int32_t extent, int32_t stride0, int32_t stride1);\n" in header


BOARD = """
#include <stdio.h>
#include "dsp_driver.h"
int32_t run_main(int64_t A, int64_t out);
void dsp_push(int32_t a, int32_t b) { printf("push %d %d\\n", a, b); }
void dsp_pop(int32_t a, int32_t b) { printf("pop %d %d\\n", a, b); }
void dsp_loop2(int32_t n, int32_t a, int32_t b) { printf("loop %d\\n", n); }
void dsp_dma_in_spad_float32_spad_dram_i7(int32_t s, int64_t d, int32_t rows, int32_t columns, int32_t stride,
    int32_t a, int32_t b, int32_t c, int32_t e) { printf("in %d\\n", columns); }
void dsp_dma_out_spad_float32_spad_dram_i7(int32_t s, int64_t d, int32_t rows, int32_t columns, int32_t stride,
    int32_t a, int32_t b, int32_t c, int32_t e) { printf("out %d\\n", columns); }
void dsp_vector_mul_spad2_f(int32_t d, int32_t a, double x) { printf("mul %g\\n", x); }
void dsp_vector_max_spad2_f(int32_t d, int32_t a, double x) { printf("max %g\\n", x); }
int main(void) { return run_main(0, 0); }
"""


def test_exported_files_link_with_the_driver_of_a_board(tmp_path: Path) -> None:
    from tilewright.runtime.link import find_cc

    _, args = fused()
    sch = tvm.auto_schedule(te.create_prim_func(args), "dsp")
    files = tvm.build(sch.mod, target="dsp").export_c(tmp_path)
    assert files == ["dsp_program.c", "dsp_driver.h", "dsp_table.c"]
    (tmp_path / "board.c").write_text(BOARD)
    command = find_cc()
    assert command is not None
    strict = ["-std=c99", "-Wall", "-Werror", "-o", "board", "board.c", "dsp_program.c"]
    subprocess.run([*command, *strict], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "board"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [
        "in 64", "push 1 2", "pop 1 2", "loop 64", "mul 0.1", "loop 64", "max 0", "push 2 3", "pop 2 3", "out 64", "",
    ]  # fmt: skip


def test_a_loaded_program_has_no_c(tmp_path: Path) -> None:
    module = tvm.build(tvm.auto_schedule(te.create_prim_func(vector_add()), "ext_dev").mod, target="ext_dev")
    assert module.get_source("c").startswith('#include "vta_driver.h"\n')
    module.save(tmp_path / "add.vta")
    loaded = tvm.runtime.load_module(str(tmp_path / "add.vta"))
    with pytest.raises(TVMError) as told:
        loaded.export_c(tmp_path)
    assert str(told.value) == (
        "module 'add.vta' was loaded from a file, which has only its instructions; build it to get C"
    )
    with pytest.raises(TVMError) as told:
        loaded.get_source("c")
    assert str(told.value) == "module 'add.vta' (vta) has no source in format 'c'; its formats: none"


def test_a_function_that_is_not_there_is_named() -> None:
    func = tiny_chip.lowered(*tiny_chip.vector_add())
    made = c_program(tvm.IRModule({"main": func}), tiny_chip.TINY)
    with pytest.raises(BuildError) as told:
        made.commands("run", as_issued)
    assert str(told.value) == "the program has no function 'run'; it has main"
