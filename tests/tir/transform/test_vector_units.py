"""Commands of vector units: floats, constants, copies, multiply-add, loops that stay on the host, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.ir.errors import LoweringError
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import For
from tilewright.script import tir as T
from tilewright.target.accelerator import DRAM, Accelerator, Engine, Scope, Transfer, VectorUnit
from tilewright.tir.analysis.commands import commands, instruction_of
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.vector_commands import vector_commands

UNIT = VectorUnit(
    "vector",
    1,
    "local.spad",
    {x: x for x in ("add", "sub", "mul", "max", "copy", "fill")} | {"multiply_add": "fma"},
    immediate=32,
    loops=2,
)
CHIP = Accelerator(
    name="floats",
    scopes=(Scope("local.spad", "spad", 4096, "float32", 1),),
    engines=(Engine("vector", 1), Engine("dma", 2)),
    tokens=frozenset({(1, 2), (2, 1)}),
    transfers=(Transfer("load", 2, DRAM, "local.spad"),),
    vector_units=(UNIT,),
)
INTEGERS = replace(
    CHIP,
    name="integers",
    scopes=(Scope("local.spad", "spad", 4096, "int32", 1),),
    vector_units=(replace(UNIT, operations={x: x for x in ("add", "mul", "max")}, immediate=16),),
)


def chip_with(chip: Accelerator = CHIP, **changes: Any) -> Accelerator:
    return replace(chip, vector_units=(replace(chip.vector_units[0], **changes),))


def issued(func: PrimFunc, chip: Accelerator = CHIP) -> list[str]:
    """The commands: loops of the host, then loops of the command and its operation with the operands' addresses."""
    out = []
    made = vector_commands(func, chip)
    for c in commands(made.body):
        loops, at = [], c.body
        while isinstance(at, For):
            loops.append(str(at.extent))
            at = at.body
        found = instruction_of(at)
        assert found is not None
        words = [str(x.args[2]) if hasattr(x, "args") else str(x) for x in found.operands[1:]]
        out.append(f"[{' '.join(loops)}] {found.operands[0].value}({', '.join(words)})")
    return out


def means_the_same(func: PrimFunc, chip: Accelerator = CHIP, dtype: str = "float32") -> None:
    """The statements that commands mean compute the result of the marked nest."""
    rng = np.random.default_rng(0)
    given = [
        rng.integers(-9, 9, [int(n) for n in func.buffer_map[p].shape]).astype(dtype) for p in func.params
    ]
    expected, got = [x.copy() for x in given], [x.copy() for x in given]
    interpret(func, *expected)
    interpret(vector_commands(func, chip), *got)
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_array_equal(a, b)


@T.prim_func
def several(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (64,), scope="local.spad")
    B = T.match_buffer(b, (64,), scope="local.spad")
    C = T.match_buffer(c, (64,), scope="local.spad")
    with T.attr(0, "pragma_vector_unit", 1):
        for i, j in T.grid(8, 8):
            C[i * 8 + j] = T.max(T.float32(0.5) * A[i * 8 + j] + B[i * 8 + j], T.float32(0))


def test_an_expression_is_one_command_for_each_operation_in_place() -> None:
    assert issued(several) == [
        "[64] mul(i, i, T.float32(0.5))",
        "[64] add(i, i, i)",
        "[64] max(i, i, T.float32(0))",
    ]
    means_the_same(several)


@T.prim_func
def matrix_vector(a: T.handle, x: T.handle, y: T.handle) -> None:
    A = T.match_buffer(a, (32,), scope="local.spad")
    X = T.match_buffer(x, (8,), scope="local.spad")
    Y = T.match_buffer(y, (4,), scope="local.spad")
    with T.attr(0, "pragma_vector_unit", 1):
        for i in range(4):
            Y[i] = T.float32(0)
    with T.attr(0, "pragma_vector_unit", 1):
        for i, k in T.grid(4, 8):
            Y[i] = Y[i] + A[i * 8 + k] * X[k]


def test_products_are_accumulated_by_one_instruction() -> None:
    assert issued(matrix_vector) == ["[4] fill(i, 0, T.float32(0))", "[4 8] fma(i, i * 8 + k, k)"]
    means_the_same(matrix_vector)


def test_without_multiply_add_a_sum_of_products_is_refused() -> None:
    chip = chip_with(operations={x: x for x in ("add", "mul", "fill")})
    with pytest.raises(LoweringError) as told:
        vector_commands(matrix_vector, chip)
    assert str(told.value) == (
        "vector unit of floats: `Y[i] + A[i * 8 + k] * X[k]` overwrites an operand that it still needs\n"
        "\n"
        '  | Y = T.Buffer((4,), scope="local.spad")\n'
        '  | A = T.Buffer((32,), scope="local.spad")\n'
        '  | X = T.Buffer((8,), scope="local.spad")\n'
        "  | for i, k in T.grid(4, 8):\n"
        "  |     Y[i] = Y[i] + A[i * 8 + k] * X[k]\n"
        "\n"
        "  hint: compute a part of it in a stage of its own"
    )


@T.prim_func
def three_loops(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (64,), scope="local.spad")
    B = T.match_buffer(b, (64,), scope="local.spad")
    with T.attr(0, "pragma_vector_unit", 1):
        for i, j, k in T.grid(4, 4, 4):
            B[i * 16 + j * 4 + k] = A[k * 16 + j * 4 + i]


@pytest.mark.parametrize(
    ("loops", "command"),
    [
        (None, "[4 4 4] copy(i * 16 + j * 4 + k, i + j * 4 + k * 16, 0)"),
        (2, "[4 4] copy(i * 16 + j * 4 + k, i + j * 4 + k * 16, 0)"),
        (1, "[4] copy(i * 16 + j * 4 + k, i + j * 4 + k * 16, 0)"),
    ],
)
def test_loops_beyond_those_of_an_instruction_stay_on_the_host(loops: int | None, command: str) -> None:
    chip = chip_with(loops=loops)
    assert issued(three_loops, chip) == [command]
    made = vector_commands(three_loops, chip)
    assert sum(isinstance(n, For) for n in pre_order(made.body)) == 3
    means_the_same(three_loops, chip)


@T.prim_func
def rows(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (128,), scope="local.spad")
    B = T.match_buffer(b, (64,), scope="local.spad")
    with T.attr(0, "pragma_vector_unit", 1):
        for i, j, k in T.grid(4, 4, 4):
            B[i * 16 + j * 4 + k] = A[i * 32 + j * 4 + k] - T.float32(1)


def test_loops_that_are_contiguous_for_all_operands_become_one() -> None:
    assert issued(rows) == ["[4 16] sub(i * 16 + j, i * 32 + j, T.float32(1))"]
    means_the_same(rows)


@T.prim_func
def integers(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (16,), "int32", scope="local.spad")
    B = T.match_buffer(b, (16,), "int32", scope="local.spad")
    with T.attr(0, "pragma_alu", 1):
        for i in range(16):
            B[i] = 3
    with T.attr(0, "pragma_alu", 1):
        for i in range(16):
            B[i] = A[i]


def test_units_of_integers_do_without_instructions_for_constants_and_copies() -> None:
    assert issued(integers, INTEGERS) == ["[16] mul(i, i, 0)", "[16] add(i, i, 3)", "[16] add(i, i, 0)"]
    means_the_same(integers, INTEGERS, "int32")
    chip = chip_with(INTEGERS, operations={x: x for x in ("add", "mul", "copy", "fill")})
    assert issued(integers, chip) == ["[16] fill(i, 0, 3)", "[16] copy(i, i, 0)"]
    means_the_same(integers, chip, "int32")


@pytest.mark.parametrize(
    ("func", "changes", "first", "hint"),
    [
        (
            matrix_vector,
            {"operations": {"add": "add", "mul": "mul"}},
            "it has no instruction for fill",
            "the unit computes: add, mul",
        ),
        (
            three_loops,
            {"operations": {"add": "add", "mul": "mul"}},
            "it has no instruction for copy",
            "the unit computes: add, mul",
        ),
        (
            several,
            {"immediate": 16},
            "the constant 0.0 does not fit an immediate operand of 16 bits",
            "keep it in a buffer, or use a smaller one",
        ),
    ],
)
def test_refusals_of_floats(func: PrimFunc, changes: dict[str, Any], first: str, hint: str) -> None:
    """x * 0 is not 0 for all floats, and x + 0 is not x for all: neither stands in for a missing instruction."""
    with pytest.raises(LoweringError) as told:
        vector_commands(func, chip_with(**changes))
    lines = str(told.value).splitlines()
    assert lines[0] == f"vector unit of floats: {first}"
    assert lines[-1] == f"  hint: {hint}"


def test_a_program_without_marks_is_unchanged() -> None:
    func = vector_commands(several, CHIP)
    assert vector_commands(func, CHIP) is func
