"""`runtime.config_threadpool`, the classic function that sets threads and CPUs, and `config.num_threads.keep`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tvm
from tilewright import config, rpc, te
from tilewright.runtime import threads
from tilewright.runtime.threads import num_threads


def in_a_thread(f: Callable[[], Any]) -> Any:
    """What a function gives in a thread of its own, whose setting ends with it."""
    got: list[Any] = []

    def work() -> None:
        try:
            got.append(f())
        finally:
            config.num_threads.keep(None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return got[0]


def test_the_number_is_that_of_the_calling_thread() -> None:
    configure = tvm.get_global_func("runtime.config_threadpool")

    def work() -> tuple[int, int, int]:
        configure(1, 3)
        first = num_threads()
        with config.num_threads.set(2):
            inside = num_threads()
        return first, inside, tvm.get_global_func("runtime.NumThreads")()

    before = num_threads()
    assert in_a_thread(work) == (3, 2, 3)
    assert num_threads() == before
    assert in_a_thread(lambda: (configure(1, 3), configure(1, 0), num_threads())[-1]) == before
    with pytest.raises(ValueError, match=r"config_threadpool\(mode=7\)"):
        configure(7, 1)


def test_compiled_loops_keep_to_it() -> None:
    """A loop that runs on one thread reports one thread of the pool to its callback."""
    seen: set[int] = set()
    tvm.register_func("test.note_thread", lambda *a: seen.add(threading.get_native_id()), override=True)
    out = te.extern((64,), [], lambda _, outs: _noting(outs[0]), name="out", dtype="float32")
    built = tvm.build(te.create_schedule(out.op), [out], "llvm -num-cores=2")

    def work() -> set[int]:
        threads.config_threadpool(1, 1)
        seen.clear()
        built(tvm.nd.empty((64,)))
        return set(seen)

    assert len(in_a_thread(work)) == 1


def _noting(buffer: Any) -> Any:
    ib = tvm.tir.ir_builder.create()
    with ib.for_range(0, 64, "i", kind="parallel"):
        ib.emit(tvm.tir.call_packed("test.note_thread"))
    return ib.get()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a thread cannot choose its CPUs here")
def test_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = sorted(os.sched_getaffinity(0))
    last = own[-1]

    def pinned(*given: Any) -> tuple[set[int], int]:
        threads.config_threadpool(*given)
        return os.sched_getaffinity(0), num_threads()

    assert in_a_thread(lambda: pinned(-2, 0, [str(last)])) == ({last}, 1)
    assert in_a_thread(lambda: pinned(-3, 2, own)) == (set(own), 2)
    for cpu in own:  # a processor of one slow CPU and of fast ones
        place = tmp_path / f"cpu{cpu}" / "cpufreq"
        place.mkdir(parents=True)
        (place / "cpuinfo_max_freq").write_text("1000000" if cpu == last else "2000000")
    monkeypatch.setattr(threads, "_CPUS", tmp_path)
    if len(own) > 1:
        assert in_a_thread(lambda: pinned(-1)) == ({last}, 1)
        assert in_a_thread(lambda: pinned(1, 1)) == (set(own) - {last}, 1)
    assert sorted(os.sched_getaffinity(0)) == own


def test_it_is_there_on_a_server() -> None:
    remote = rpc.LocalSession()
    configure, count = (remote.get_function(f"runtime.{n}") for n in ("config_threadpool", "NumThreads"))
    try:
        assert in_a_thread(lambda: (configure(1, 3), count())[1]) == 3
    finally:
        remote.close()
