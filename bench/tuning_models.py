"""Whole models with tuned kernels, in turns with onnxruntime and with tilewright's zero-trial schedules."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cpu_kernels import mean, time_text
from cpu_models import PATIENCE, ModelEntry, entry_of, sample
from models import MODELS, write_model
from tuning_workers import share
from workers import Worker

from tilewright import relay
from tilewright.relay.backend.tasks import extract
from tilewright.tune.search.allocate import tune_tasks
from tilewright.tune.search.search import SearchOptions

PEERS = ("tuned", "tilewright", "onnxruntime")


def tuned(name: str, threads: int, trials: int, records: str, folder: Path) -> dict[str, Any]:
    """Trials for all tasks of a model together, by what each is expected to save."""
    mod, params = relay.frontend.from_onnx(str(folder / f"{name}.onnx"))
    found = extract(mod, params, f"llvm -num-cores={threads}")
    start = time.perf_counter()
    shares = tune_tasks(
        [task for task, _ in found],
        trials,
        records,
        [float(weight) for _, weight in found],
        options=SearchOptions(patience=10_000),
    )
    spent = sum(len(s.tuner.trials) for s in shares)
    zero = sum(s.weight * s.tuner.zero for s in shares if s.tuner.best is not None)
    best = sum(s.weight * s.tuner.best[1] for s in shares if s.tuner.best is not None)
    failed = [s.error.splitlines()[0] for s in shares if s.error]
    return {
        "tasks": len(found),
        "trials": spent,
        "seconds": time.perf_counter() - start,
        "kernels before": zero,
        "kernels after": best,
        "failed": failed,
    }


def timed(name: str, threads: int, options: argparse.Namespace, folder: Path) -> dict[str, ModelEntry]:
    """Everybody in turns, as in cpu_models.py."""
    script = str(Path(__file__).with_name("tuning_workers.py"))
    log = Path(options.log or os.devnull)
    workers: dict[str, Worker] = {}
    entries: dict[str, ModelEntry] = {}
    try:
        for peer in PEERS:
            workers[peer] = Worker(
                f"model:{peer}", threads, "", log, options.realtime, script, keep_memory=False
            )
            told = workers[peer].ask(PATIENCE, do="prepare", model=name, folder=str(folder), ms=50.0)
            entries[peer], _ = entry_of(MODELS[name], told)
        order = [p for p in PEERS if not entries[p].failed]
        for number in range(options.rounds):
            turn = number % max(1, len(order))
            for peer in order[turn:] + order[:turn]:
                sample(workers[peer], entries[peer], options.retries)
    finally:
        for worker in workers.values():
            worker.close()
    return entries


def compared_models(
    names: Sequence[str], options: argparse.Namespace, note: Callable[[str], None]
) -> dict[str, Any]:
    share(options.records)
    rows, cells = [], []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            write_model(MODELS[name], folder)
            for threads in options.threads:
                told = tuned(name, threads, options.model_trials, options.records, folder)
                note(f"{name} on {threads}: {told}")
                entries = timed(name, threads, options, folder)
                times = {peer: entries[peer].seconds for peer in PEERS}
                to = [entries[p].over(entries["tuned"]) for p in ("onnxruntime", "tilewright")]
                plain = {peer: entry.plain() for peer, entry in entries.items()}
                rows.append({"model": name, "threads": threads, "tuning": told, "peers": plain, "ratios": to})
                failed = [f"{p}: {e.failed}" for p, e in entries.items() if e.failed]
                cells.append(
                    [
                        MODELS[name].title,
                        str(threads),
                        *(time_text(times[p]) + ("~" if entries[p].disturbed else "") for p in PEERS),
                        *(f"{r:.2f}" if r is not None else "-" for r in to),
                        f"{told['trials']} of {told['tasks']} tasks in {told['seconds']:.0f} s",
                        "; ".join([*failed, *told["failed"]])[:120] or entries["tuned"].note,
                    ]
                )
                note(" | ".join(cells[-1]))
    heads = [
        "model",
        "threads",
        "tuned",
        "zero trials",
        "onnxruntime",
        "to onnxruntime",
        "to zero",
        "trials",
        "",
    ]
    means = mean([r["ratios"][0] for r in rows if r["ratios"][0] is not None])
    text = f"Geometric mean to onnxruntime: {means:.2f}\n" if means is not None else ""
    return {"rows": rows, "tables": [("Models", heads, cells)], "text": text}
