"""Every example runs, and prints what it promises."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import needs
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORTER = {
    "accelerator": ["--layers", "C11", "--size", "32", "--widths", "16,32", "--out", "pictures"],
    "auto_schedule": ["--size", "64", "--pixels", "14", "--rounds", "1"],
    "generate": ["--width", "64", "--layers", "2", "--vocabulary", "64", "--tokens", "6", "--prompt", "5"],
    "matmul": ["--size", "64", "--rounds", "1"],
    "read_text": ["--rounds", "1"],
    "train": ["--steps", "12"],
}
PROMISES = {
    "accelerator": ["C11", "The answers are equal, bit for bit.", "roofline: pictures/roofline.svg"],
    "auto_schedule": ["register tile", "64 × 64 × 64", "winograd", "it computes what NumPy does"],
    "custom_pass": ["doubling_as_addition", "<-- changed", "and it computes what it should"],
    "deploy_c": ["int32_t saxpy(float a,", "from C, with 2 threads: z[0] = 0.5", "loaded by Python: Module("],
    "generate": [
        "a network like GPT: ",
        "a network like Llama: ",
        "the tokens of PyTorch are the same",
        "tokens/s",
    ],
    "gpu_schedules": ["convolution  ", "2 barriers", "C_local["],
    "gpu_tensor_cores": ["T_matmul_NT: tensor cores", "lines of CUDA"],
    "matmul": ["64 × 64 × 64", "registers", "NumPy"],
    "python_callback": ["example.sort_rows", "ValueError: there is no order"],
    "read_text": [
        "│ The quick brown fox jumps over  │ The quick brown fox jumps over  │",
        "onnxruntime reads the same",
    ],
    "reductions": ["argmax of row 3, whose elements 500 and 700 are both 9: 500", "largest relative error"],
    "schedule_report": ["T.vectorized(16)", "the report is in"],
    "stencil": ["A plate of 240 × 480 points after 4000 steps", "@@@@"],
    "train": ["step   0   loss", "1316 weights; the loss fell from", "directions found of new images"],
    "vector_dsp": [
        "matrix_vector  by hand",
        "dsp_vector_fma_spad3(",
        "fused_multiply_add_nn_relu: dsp",
        "fused_nn_softmax: the host",
    ],
    "vector_add": ["vectors on all cores", "expected n = 1000003"],
}


def test_every_example_is_here() -> None:
    assert sorted(PROMISES) == sorted(p.stem for p in EXAMPLES.glob("*.py"))


QUICK = {"vector_add"}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in sorted(PROMISES)]
)
def test_example_runs(name: str, tmp_path: Path) -> None:
    if name == "deploy_c":
        needs.skip_without("linker")
    if name == "generate":
        pytest.importorskip("torch")
    if name == "read_text":
        pytest.importorskip("PIL")
        pytest.importorskip("onnxruntime")
        if importlib.util.find_spec("rapidocr_onnxruntime") is None:
            pytest.skip("needs the Python package rapidocr-onnxruntime")
    # An example runs as a user runs it: without the checks that are on in the tests, in any folder.
    env = {k: v for k, v in os.environ.items() if k != "TILEWRIGHT_CHECK"} | {"COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *SHORTER.get(name, [])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in PROMISES[name]:
        assert text in done.stdout, f"{text!r} is not in:\n{done.stdout}"
