"""`import tilewright` brings in nothing heavy; bench/core.py has what it costs, beside its budget."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"jax", "llvmlite", "ml_dtypes", "numpy", "onnx", "rich", "scipy", "torch", "typer", "xgboost", "z3"}


def in_a_new_process(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def test_import_brings_in_nothing_heavy() -> None:
    out = in_a_new_process("import json, sys, tilewright; print(json.dumps(sorted(sys.modules)))")
    loaded = {name.split(".")[0] for name in json.loads(out)}
    assert not loaded & HEAVY, (
        f"import tilewright imports {sorted(loaded & HEAVY)}; import them where they are used"
    )


def test_describing_and_lowering_a_program_needs_no_llvm() -> None:
    program = """
import json, sys
import tilewright as tvm
from tilewright import te
A = te.placeholder((8,), name="A")
B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
tvm.lower(te.create_schedule(B.op), [A, B])
print(json.dumps(sorted(sys.modules)))
"""
    loaded = {name.split(".")[0] for name in json.loads(in_a_new_process(program))}
    assert not loaded & {"llvmlite", "torch", "jax", "rich"}


def test_the_runtime_loads_no_compiler() -> None:
    out = in_a_new_process(
        "import json, sys; from tilewright.runtime import load_module, array; "
        "print(json.dumps(sorted(sys.modules)))"
    )
    rooms = {name.split(".")[1] for name in json.loads(out) if name.startswith("tilewright.")}
    # The front door brings `ir` along for IRModule; nothing that compiles may come with it.
    assert not rooms & {"arith", "te", "tir", "script", "target", "codegen", "compiler", "driver", "backends"}


@pytest.mark.slow
def test_a_graph_is_built_without_the_operators_computes() -> None:
    program = """
import json, sys
from tilewright import relay
x = relay.var("x", shape=(1, 3, 8, 8))
relay.transform.infer_type(relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3))))))
print(json.dumps(sorted(sys.modules)))
"""
    loaded = json.loads(in_a_new_process(program))
    rooms = {name.split(".")[1] for name in loaded if name.startswith("tilewright.")}
    assert not rooms & {"arith", "te", "tir", "topi", "tune", "codegen"}
