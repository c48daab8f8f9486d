"""One token after a past of n: networks like GPT-2 and Llama (examples/generate.py) at the size of GPT-2 small.

    python bench/decoding.py                                          pasts of 16, 256, 1024 and 4096, 1 and 2 threads
    python bench/decoding.py --only llama --past 1024 --threads 1 --rounds 15

tilewright's `Decoder` writes its KV caches in place; onnxruntime and PyTorch take the past as inputs and return it.
Each engine has a process of its own, and those that are not being timed wait. In each round everybody gives one sample
in turn; the median over the rounds counts. The ratio is the peer's time over tilewright's. GB/s is the rate at which
the weights are read, each once a token.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ENGINES = ("tilewright", "onnxruntime", "torch")
WIDTH, LAYERS, HEAD, VOCABULARY = 768, 12, 64, 50257


def work(pipe: Any, engine: str, kind: str, threads: int, longest: int) -> None:
    """The process of an engine: it answers with the seconds of one step after a past, and the likeliest token."""
    os.environ["TILEWRIGHT_NUM_THREADS"] = str(threads)
    os.sched_setaffinity(
        0, sorted(os.sched_getaffinity(0))[:threads]
    )  # the number of threads of every engine
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    import warnings

    warnings.simplefilter("ignore")
    import generate
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = {"gpt": generate.GPT, "llama": generate.Llama}[kind](
        WIDTH, LAYERS, HEAD, VOCABULARY, longest + 2
    ).eval()
    weights = sum(p.numel() * p.element_size() for p in net.parameters())
    with torch.no_grad():
        if engine == "tilewright":
            decoder = generate.Decoder(generate.exported(net), max_length=longest + 2)

            def started(past: Any) -> Any:
                decoder.start([e for layer in past for e in layer])
                return decoder

        elif engine == "onnxruntime":
            _, started = generate.by_onnxruntime(net, threads)
        else:
            _, started = generate.by_torch(net)
        pipe.send(weights)
        token = torch.tensor([[3]])
        while (rows := pipe.recv()) is not None:
            fill = np.random.default_rng(rows)
            shape = (1, net.cache[0], rows, net.cache[1])
            past = [
                tuple(torch.from_numpy(fill.standard_normal(shape, dtype="float32")) for _ in "kv")
                for _ in net.blocks
            ]
            step = started(past)
            start = time.perf_counter()
            scores = step(token)
            pipe.send((time.perf_counter() - start, int(scores.argmax())))


class Engine:
    """An engine in a process of its own."""

    def __init__(self, *given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *given), daemon=True)
        self.process.start()
        theirs.close()
        self.weights = self.pipe.recv()

    def step(self, rows: int) -> tuple[float, int]:
        self.pipe.send(rows)
        return self.pipe.recv()  # type: ignore[no-any-return]


def measure(kind: str, threads: int, pasts: list[int], rounds: int, names: list[str]) -> None:
    engines = {n: Engine(n, kind, threads, max(pasts)) for n in names}
    for rows in pasts:
        for _ in range(2):
            tokens = {n: e.step(rows)[1] for n, e in engines.items()}
        times: dict[str, list[float]] = {n: [] for n in names}
        for turn in range(rounds):
            for i in range(len(names)):
                name = names[(turn + i) % len(names)]
                times[name].append(engines[name].step(rows)[0])
        median = {n: statistics.median(t) for n, t in times.items()}
        ours = median["tilewright"]
        rate = engines["tilewright"].weights / ours / 1e9
        cells = [f"{median[n] * 1e3:.1f} ms" for n in names] + [f"{median[n] / ours:.2f}" for n in names[1:]]
        same = "" if len(set(tokens.values())) == 1 else "   other tokens"
        print(f"| {kind}, {threads}, {rows} | {' | '.join(cells)} | {rate:.0f} |{same}", flush=True)
    for e in engines.values():
        e.process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("gpt", "llama"))
    parser.add_argument("--past", default="16,256,1024,4096")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--engines", default=",".join(ENGINES))
    args = parser.parse_args()
    names = args.engines.split(",")
    ratios = [f"{n} / tilewright" for n in names[1:]]
    print(f"| network, threads, past | {' | '.join(names)} | {' | '.join(ratios)} | GB/s of weights |")
    print("|---|" + "---:|" * (2 * len(names)))
    for threads in map(int, args.threads.split(",")):
        for kind in ("gpt", "llama"):
            if args.only in (None, kind):
                measure(kind, threads, [int(n) for n in args.past.split(",")], args.rounds, names)


if __name__ == "__main__":
    main()
