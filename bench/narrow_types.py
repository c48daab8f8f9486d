"""Products and convolutions of narrow types on CPUs: beside onnxruntime, and beside tilewright's own float32.

    python bench/narrow_types.py                          all rows on 1 and 2 threads
    python bench/narrow_types.py --threads 2 --only "conv" --rounds 9
    python bench/narrow_types.py --json out.json --md out.md

Each row is an ONNX model of one operator, with a constant weight. Every engine has a process of its own for it, and
they are timed in turns; the median counts. The ratio is the other's time over tilewright's: above 1, tilewright is
faster. Integers must be equal to onnxruntime's, and results of convolutions equal up to a step of the quantization.
Products with weights of few bits may differ by 1e-4 of the largest result, and by 0.02 where the data is rounded to 8
bits (level 4).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cpu_kernels import machine_text
from onnx import TensorProto, helper, numpy_helper, save
from rich.console import Console
from rich.table import Table

from tilewright.tvmc.compare import Engine

TYPES = {
    "u8": (TensorProto.UINT8, np.uint8), "s8": (TensorProto.INT8, np.int8), "f32": (TensorProto.FLOAT, np.float32),
    "f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, np.float32),
}  # fmt: skip
WEIGHTS = [
    *((m, 4096, 4096) for m in (1, 2, 4)),
    (1, 768, 3072), (1, 2048, 5632), (1, 4096, 11008), (16, 4096, 4096), (128, 4096, 4096),
]  # fmt: skip
BLOCK = 32
OURS, THEIRS = "tilewright", "onnxruntime"


@dataclass(frozen=True)
class Case:
    """A product of (m, k) by (k, n), or a convolution if it has a `size`. `first` and `second` are the types."""

    name: str
    first: str
    second: str
    shape: tuple[int, int, int]
    size: int = 0
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False
    bits: int = 0  # of weights with a scale and a zero point for each block of 32
    level: int = 0  # MatMulNBits: 4 allows to round the data to 8 bits

    @property
    def compared(self) -> bool:
        """Whether onnxruntime computes in this type on CPUs."""
        return self.first in ("u8", "s8", "f32")

    def in_floats(self) -> Case:
        return Case(self.name, "f32", "f32", self.shape, self.size, self.kernel, self.stride, self.depthwise)


def cases() -> Iterator[Case]:
    shapes = [(512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (16, 768, 3072), (1, 4096, 4096)]
    for first, second in (("u8", "s8"), ("s8", "s8")):
        for shape in shapes:
            yield Case(f"{first}·{second} {'x'.join(map(str, shape))}", first, second, shape)
    for kind in ("bf16", "f16"):
        for n in (512, 1024, 2048):
            yield Case(f"{kind} {n} cubed", kind, kind, (n, n, n))
    for bits, level in ((4, 0), (4, 4), (8, 0)):
        for m, k, n in WEIGHTS if level == 0 else WEIGHTS[:6]:
            name = f"weights of {bits} bits{f', level {level}' if level else ''} {m}x{k}x{n}"
            yield Case(name, "f32", "f32", (m, k, n), bits=bits, level=level)
    convolutions = [
        # ResNet-50: inputs, outputs, size of the image, kernel, stride
        (3, 64, 224, 7, 2), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (256, 128, 56, 1, 1), (128, 128, 28, 3, 1),
        (512, 256, 28, 1, 1), (256, 256, 14, 3, 1), (1024, 512, 14, 1, 1), (512, 512, 7, 3, 1), (2048, 512, 7, 1, 1),
        (256, 512, 56, 1, 2),
        # MobileNetV2
        (3, 32, 224, 3, 2), (16, 96, 112, 1, 1), (96, 24, 56, 1, 1), (144, 24, 56, 1, 1), (192, 32, 28, 1, 1),
        (384, 96, 14, 1, 1), (160, 960, 7, 1, 1), (320, 1280, 7, 1, 1),
    ]  # fmt: skip
    for i, o, size, kernel, stride in convolutions:
        name = f"conv {kernel}x{kernel}{f'/{stride}' if stride > 1 else ''} {i}->{o}@{size}"
        yield Case(name, "u8", "s8", (o, i, 0), size, kernel, stride)
    for channels, size, stride in ((32, 112, 1), (96, 112, 2), (144, 56, 1), (384, 14, 1), (960, 7, 1)):
        name = f"depthwise 3x3{'/2' if stride > 1 else ''} {channels}@{size}"
        yield Case(name, "u8", "s8", (channels, 1, 0), size, 3, stride, depthwise=True)


def stored(name: str, kind: str, shape: tuple[int, ...], rng: Any) -> Any:
    code, plain = TYPES[kind]
    if kind in ("u8", "s8"):
        low, high = (0, 255) if kind == "u8" else (-127, 127)
        return numpy_helper.from_array(rng.integers(low, high, shape, endpoint=True).astype(plain), name)
    values = rng.standard_normal(shape).astype(plain) * plain(0.1)
    if kind == "bf16":
        return helper.make_tensor(name, code, shape, values.reshape(-1).tolist())
    return numpy_helper.from_array(values, name)


def model_of(case: Case, rng: Any) -> tuple[Any, dict[str, Any]]:
    """The model of one operator, and its input."""
    code, plain = TYPES[case.first]
    whole = case.first in ("u8", "s8")
    numbers: list[Any] = []

    def number(name: str, value: Any) -> str:
        numbers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    if case.bits:
        return weights_of_few_bits(case, rng)
    if not case.size:
        m, k, n = case.shape
        x, w = (m, k), (k, n)
        zeros = [number("zx", np.zeros((), plain)), number("zw", np.zeros((), np.int8))] if whole else []
        node = helper.make_node("MatMulInteger" if whole else "MatMul", ["x", "w", *zeros], ["y"])
        out = TensorProto.INT32 if whole else code
    else:
        o, i, _ = case.shape
        x, w = (1, o if case.depthwise else i, case.size, case.size), (o, i, case.kernel, case.kernel)
        pads = {
            "pads": [case.kernel // 2] * 4,
            "strides": [case.stride] * 2,
            "group": o if case.depthwise else 1,
        }
        names = ["x", "w"]
        if whole:
            sums = 0.02 * np.sqrt(np.prod(w[1:])) * 73 / 40
            names = ["x", number("sx", np.float32(0.02)), number("zx", np.uint8(3)), "w"]
            names += [number("sw", np.full(o, 1 / 40, np.float32)), number("zw", np.zeros(o, np.int8))]
            names += [number("sy", np.float32(sums)), number("zy", np.uint8(128))]
            names.append(number("b", rng.integers(-500, 500, o).astype(np.int32)))
        node = helper.make_node("QLinearConv" if whole else "Conv", names, ["y"], **pads)
        out = code
    graph = helper.make_graph(
        [node],
        case.name,
        [helper.make_tensor_value_info("x", code, x)],
        [helper.make_tensor_value_info("y", out, None)],
        [stored("w", case.second, w, rng), *numbers],
    )
    data = numpy_helper.to_array(stored("x", case.first, x, rng))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), {"x": data}


def weights_of_few_bits(case: Case, rng: Any) -> tuple[Any, dict[str, Any]]:
    """A product with packed weights, as the models of language have them."""
    (m, k, n), bits = case.shape, case.bits
    count = k // BLOCK
    packed = rng.integers(0, 256, (n, count, BLOCK * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.001, 0.01, (n, count)).astype(np.float32)
    zeros = rng.integers(0, 256, (n, count * bits // 8)).astype(np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft",
        K=k, N=n, bits=bits, block_size=BLOCK, accuracy_level=case.level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        case.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (m, k))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (m, n))],
        [numpy_helper.from_array(*pair) for pair in ((packed, "w"), (scales, "s"), (zeros, "z"))],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=8)
    return model, {"x": rng.standard_normal((m, k)).astype(np.float32)}


def timed(case: Case, threads: int, rounds: int, folder: Path) -> dict[str, Any]:
    """The median seconds of everybody, in turns."""
    rng, row = np.random.default_rng(1), {"name": case.name, "threads": threads}
    with ExitStack() as stack:
        engines: dict[str, Engine] = {}
        for who, of in ((OURS, case), ("float32", case.in_floats()), (THEIRS, case)):
            if who == THEIRS and not case.compared:
                continue
            model, data = model_of(of, rng)
            path = folder / f"{who}.onnx"
            save(model, path)
            if who == THEIRS:
                path = folder / f"{OURS}.onnx"  # the same model, and the same data
                data = engines[OURS].given
            engine = Engine(THEIRS if who == THEIRS else OURS, path, data, {"threads": threads})
            engines[who] = stack.enter_context(closing(engine))
            engine.given = data  # type: ignore[attr-defined]
        if THEIRS in engines:
            found, wanted = (engines[e].results["y"].astype(np.int64) for e in (OURS, THEIRS))
            error = np.abs(found - wanted).max()
            if case.bits:
                found, wanted = (engines[e].results["y"] for e in (OURS, THEIRS))
                error = np.abs(found - wanted).max() / np.abs(wanted).max()
            if error > (0.02 if case.level else 1e-4 if case.bits else 1 if case.size else 0):
                return {**row, "failed": f"wrong by {error}"}
        numbers = {who: max(1, int(0.02 / max(1e-6, e.seconds(3)))) for who, e in engines.items()}
        samples: dict[str, list[float]] = {who: [] for who in engines}
        for turn in range(rounds):
            order = list(engines)
            for who in order[turn % len(order) :] + order[: turn % len(order)]:
                samples[who].append(engines[who].seconds(numbers[who]))
    return {**row, **{who: statistics.median(s) for who, s in samples.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="rows with this in their names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--md", type=Path)
    options = parser.parse_args()
    rows = []
    for threads in map(int, options.threads.split(",")):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        for case in cases():
            if options.only in case.name:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(timed(case, threads, options.rounds, Path(folder)))
                print(rows[-1], flush=True)
    heads = ("", "threads", "us", "of onnxruntime", "of our float32")
    lines = [[r["name"], str(r["threads"]), *_figures(r)] for r in rows]
    table = Table(*heads, title=machine_text())
    for line in lines:
        table.add_row(*line)
    Console(width=110).print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.md:
        body = ["| " + " | ".join(x) + " |" for x in (heads, ["---"] * len(heads), *lines)]
        options.md.write_text("\n".join(body) + "\n")


def _figures(row: dict[str, Any]) -> list[str]:
    if "failed" in row:
        return [row["failed"], "", ""]
    ours = row[OURS]
    return [
        f"{ours * 1e6:.1f}",
        *(f"{row[who] / ours:.2f}" if who in row else "" for who in (THEIRS, "float32")),
    ]


if __name__ == "__main__":
    main()
