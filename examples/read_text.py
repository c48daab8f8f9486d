"""Two neural networks read a page: one finds the lines of text, one says what they are.

The networks are the ONNX files of a package on PyPI (`pip install --no-deps rapidocr-onnxruntime`); the page is drawn
here, or yours (`--picture`). Each is compiled to machine code for this processor with no tuning, checked against
onnxruntime, and measured in turn with it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.console import Console
from rich.table import Table

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

PACKAGE = "rapidocr-onnxruntime"
FILES = {"find the lines": "ch_PP-OCRv4_det_infer.onnx", "read a line": "ch_PP-OCRv4_rec_infer.onnx"}
FIND, READ = FILES
PAGE = (224, 640)
SHAPES = {FIND: (1, 3, *PAGE), READ: (1, 3, 48, 640)}
TEXT = [
    "Models in, one fast library out",
    "pi is 3.14159 26535 89793",
    "The quick brown fox jumps over",
    "the lazy dog: 12 + 30 = 42",
]
Network = Callable[[Any], Any]


# -- the page ------------------------------------------------------------------------------------
def drawn() -> Image.Image:
    """The text, dark on light."""
    page = Image.new("L", PAGE[::-1], 250)
    pen = ImageDraw.Draw(page)
    for i, line in enumerate(TEXT):
        pen.text((20 + 10 * i, 8 + 52 * i), line, font=ImageFont.load_default(34), fill=20)
    return page


def page_of(path: str | None) -> Image.Image:
    if path is None:
        return drawn()
    return ImageOps.pad(Image.open(path).convert("L"), PAGE[::-1], color=255)


def tensor(picture: Image.Image, shape: tuple[int, ...]) -> Any:
    """Grey from -1 to 1 in three channels, with nothing to the right where the picture is narrower."""
    made = np.zeros(shape, np.float32)
    made[..., : picture.width] = np.asarray(picture, np.float32) / 127.5 - 1
    return made


# -- what the networks' answers mean -----------------------------------------------------------------
def lines_of(page: Image.Image, find: Network) -> Iterator[Image.Image]:
    """The lines, cut out: the network marks their cores, which are smaller than the letters."""
    marked = find(tensor(page, SHAPES[FIND]))[0, 0] > 0.3
    rows = np.flatnonzero(marked.any(1))
    for band in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        if len(band) < 4:
            continue
        columns = np.flatnonzero(marked[band].any(0))
        high, wide = len(band), columns[-1] - columns[0] + 1
        more = round(1.6 * high * wide / (2 * (high + wide)))
        yield page.crop((columns[0] - more, band[0] - more, columns[-1] + more, band[-1] + more))


def text_of(line: Image.Image, read: Network, letters: list[str]) -> tuple[str, float]:
    """What a line says, and how sure the network is: for each step the likeliest letter, or a pause."""
    high, most = SHAPES[READ][2:]
    width = min(most, round(line.width * high / line.height))
    chances = read(tensor(line.resize((width, high)), SHAPES[READ]))[0]
    best = chances.argmax(1)
    spoken = [t for t, k in enumerate(best) if k and (not t or k != best[t - 1])]
    if not spoken:
        return "", 0.0
    return "".join(letters[best[t]] for t in spoken), float(np.mean([chances[t, best[t]] for t in spoken]))


# -- the networks ------------------------------------------------------------------------------------
def model_files() -> dict[str, Path]:
    try:
        found = {f.name: Path(str(f.locate())) for f in importlib.metadata.files(PACKAGE) or []}
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE}")
    return {name: found[file] for name, file in FILES.items()}


def compiled(path: Path, shape: tuple[int, ...]) -> Any:
    mod, params = relay.frontend.from_onnx(path, shape={"x": shape})
    library = relay.build(mod, "llvm", params=params)
    return graph_executor.GraphModule(library["default"](tvm.cpu()))


def network(module: Any) -> Network:
    def run(x: Any) -> Any:
        module.set_input("x", x)
        module.run()
        return module.get_output(0).numpy()

    return run


def measure(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, sampled in turn so that drift of the machine hits all alike.

    Threads of either side wait for more work awake for a while, on the core that the other one needs: a rest lets them
    fall asleep, and a run that is not counted wakes one's own.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.03)
            run()
            start = time.perf_counter()
            run()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in samples.items()}


def work(picture: str | None, rounds: int) -> dict[str, Any]:
    """Compile, check, read and measure in this process."""
    start = time.perf_counter()
    modules = {name: compiled(path, SHAPES[name]) for name, path in model_files().items()}
    seconds = time.perf_counter() - start
    if not rounds:
        return {"compiled": seconds}
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["TILEWRIGHT_NUM_THREADS"])
    peers = {name: onnxruntime.InferenceSession(str(p), options) for name, p in model_files().items()}
    ours = {name: network(m) for name, m in modules.items()}
    theirs: dict[str, Network] = {name: lambda x, s=s: s.run(None, {"x": x})[0] for name, s in peers.items()}

    page = page_of(picture)
    letters = ["", *peers[READ].get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
    answers = [text_of(line, ours[READ], letters) for line in lines_of(page, ours[FIND])]
    agreed = [text_of(line, theirs[READ], letters)[0] for line in lines_of(page, theirs[FIND])]
    times = {}
    for name, shape in SHAPES.items():
        x = tensor(page.crop((0, 0, shape[3], shape[2])), shape)
        np.testing.assert_allclose(ours[name](x), theirs[name](x), rtol=1e-3, atol=1e-5)
        times[name] = measure(
            {"tilewright": modules[name].run, "onnxruntime": lambda x=x, n=name: theirs[n](x)}, rounds
        )
    return {
        "compiled": seconds,
        "answers": answers,
        "agreed": agreed == [a for a, _ in answers],
        "seconds": times,
    }


def in_child(threads: int, folder: str, picture: str | None, rounds: int) -> dict[str, Any]:
    """The same in a process where both sides have so many threads."""
    cache = {"TILEWRIGHT_CACHE": "1", "TILEWRIGHT_CACHE_DIR": folder}
    env = {**os.environ, **cache, "TILEWRIGHT_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--worker", "--rounds", str(rounds)]
    command += ["--picture", picture] if picture else []
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", help="an image with lines of text, instead of the page drawn here")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.picture, options.rounds)))
        return
    model_files()
    console = Console()
    cores = len(os.sched_getaffinity(0))
    results = {}
    with tempfile.TemporaryDirectory() as folder:  # an empty cache: the first compilation is a cold one
        with console.status("compiling two networks"):
            cold = in_child(cores, folder, None, 0)["compiled"]
            warm = in_child(cores, folder, None, 0)["compiled"]
        for threads in sorted({1, cores}):
            with console.status(f"reading and measuring with {threads} thread{'s' * (threads > 1)}"):
                results[threads] = in_child(threads, folder, options.picture, options.rounds)

    first = next(iter(results.values()))
    page = Table(title="What the page says")
    if options.picture is None:
        page.add_column("drawn")
    page.add_column("read")
    page.add_column("sure", justify="right")
    drawn_lines = TEXT + [""] * len(first["answers"])
    for line, (text, chance) in zip(drawn_lines, first["answers"], strict=False):
        page.add_row(*([line] if options.picture is None else []), f"[bold]{text}", f"{chance:.0%}")
    console.print(page)

    table = Table(title="Milliseconds for one run")
    for title in ("network", "input", "threads", "onnxruntime", "tilewright", "ratio"):
        table.add_column(title, justify="left" if title == "network" else "right", no_wrap=True)
    for name, shape in SHAPES.items():
        for threads, found in results.items():
            ours, theirs = found["seconds"][name]["tilewright"], found["seconds"][name]["onnxruntime"]
            figures = [f"{theirs * 1e3:.1f}", f"[bold]{ours * 1e3:.1f}", f"{theirs / ours:.2f}"]
            table.add_row(name, " × ".join(map(str, shape[1:])), str(threads), *figures)
    console.print(table)
    same = "the same lines" if all(r["agreed"] for r in results.values()) else "other lines (!)"
    console.print(
        f"Both networks were compiled in {cold:.1f} s, and in {warm:.1f} s when they are compiled again. "
        f"onnxruntime reads {same}."
    )


if __name__ == "__main__":
    main()
