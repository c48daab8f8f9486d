"""Compilation of the kernels of a model: each once, in parallel, from the cache if possible."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from ...codegen.llvm.objects import cache_of_this_build
from ...forks import new_in_child
from ...ir.errors import BuildError, InternalError, TVMError
from ...ir.function import PrimFunc
from ...target import Target
from ..expr import Function
from ..op.implementation import OpImplementation, best_implementation, implementations
from ..op.registry import RelayOp
from .kernel import Job, Kernel, compile_kernel
from .lower import loops_of

_FEW = 3  # up to this many kernels are compiled faster in this process

# The jobs of the workers, which are forks of this process, so that nothing needs to be sent to them.
_work: tuple[Sequence[Job], Target] | None = None
_forking = new_in_child(threading.Lock())


# ---------------------------------------------------------------------------- implementations, by classic names
def get_valid_implementations(
    op: RelayOp, attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target
) -> list[OpImplementation]:
    """The implementations of a call for a target whose conditions hold."""
    return implementations(op, attrs, inputs, out_type, target)


def select_implementation(
    op: RelayOp, attrs: Any, inputs: Sequence[Any], out_type: Any, target: Target, use_autotvm: bool = True
) -> tuple[OpImplementation, list[Any]]:
    """The implementation that a model is compiled with, and the tensors of its result.

    Records of tuning choose schedules when kernels are compiled, so `use_autotvm` makes no difference here.
    """
    chosen = best_implementation(op, attrs, inputs, out_type, target)
    return chosen, chosen.compute(attrs, inputs, out_type)


def lower_to_primfunc(relay_func: Function, target: Any) -> PrimFunc:
    """The loops of a fused function, not scheduled. Needs: types."""
    return loops_of(relay_func, (), Target.canon_target(target))[0]


# ---------------------------------------------------------------------------- kernels
def compile_all(
    jobs: Sequence[Job], target: Target, failed: dict[str, TVMError] | None = None
) -> dict[str, Kernel]:
    """The kernels of all jobs by key; jobs that fail are added to `failed` if it is given."""
    cache = cache_of_this_build()
    wanted = {job.key: job for job in jobs}
    made: dict[str, Kernel] = {}
    if cache is not None:
        for key, job in wanted.items():
            data = cache.get(key) if job.cached else None
            if data is not None:
                made[key] = Kernel.unpacked(data)
    missing = [job for key, job in wanted.items() if key not in made]
    if not missing:
        return _warned(made)
    with _progress(len(missing)) as advance:
        for job, result in _compiled(missing, target, advance, failed is not None):
            if isinstance(result, TVMError):
                assert failed is not None
                failed[job.key] = result
                continue
            made[job.key] = Kernel.unpacked(result)
            if cache is not None and job.cached:
                cache.put(job.key, result)
    return _warned(made)


class TECompiler:
    """The door to the kernels that this process has compiled; those on disk are `config.cache_dir`'s."""

    def clear(self) -> None:
        """Forget the kernels that this process keeps for evaluation at compile time."""
        from .single import forget

        forget()


def get() -> TECompiler:
    """The compiler of kernels."""
    return TECompiler()


def _warned(made: dict[str, Kernel]) -> dict[str, Kernel]:
    """Repeat the warnings of kernels, from other processes or from the cache."""
    for text in dict.fromkeys(text for kernel in made.values() for text in kernel.warnings):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return made


def _compiled(
    jobs: list[Job], target: Target, advance: Callable[[Job], None], lenient: bool
) -> Iterator[tuple[Job, bytes | TVMError]]:
    workers = min(_cores(), len(jobs))
    if workers < 2 or len(jobs) <= _FEW or not _can_fork():
        for job in jobs:
            advance(job)
            yield job, _tried(job, target) if lenient else _compile(job, target)
        return
    with _forking:  # one model at a time has all cores
        yield from _in_workers(jobs, target, workers, advance, lenient)


def _in_workers(
    jobs: list[Job], target: Target, workers: int, advance: Callable[[Job], None], lenient: bool
) -> Iterator[tuple[Job, bytes | TVMError]]:
    global _work
    jobs = sorted(jobs, key=_weight, reverse=True)  # longest first, for load balance
    here = target if target.is_cpu else Target("llvm")
    _ = here.cpu  # detected once, before the fork
    _work = (jobs, target)
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, context, _end_with, (os.getpid(),)) as pool:
            waiting = {pool.submit(_compile_numbered, i, lenient): job for i, job in enumerate(jobs)}
            workers_of_pool = list(pool._processes.values())
            try:
                for done in as_completed(waiting):
                    advance(waiting[done])
                    yield waiting[done], done.result()
            except BrokenProcessPool:
                left = [
                    job.label for future, job in waiting.items() if not future.done() or future.exception()
                ]
                raise BuildError(
                    "a compiling process ended by itself (out of memory, or a fault in LLVM), while one of these "
                    f"was compiled: {', '.join(left[: workers + 2])}"
                ) from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for (
                    process
                ) in workers_of_pool:  # they may be in LLVM for long, and the result is not needed any more
                    process.kill()
                raise
    finally:
        _work = None


def _end_with(parent: int) -> None:
    """End with the parent. Garbage from before the fork is not collected: its finalizers may wait for threads
    (onnxruntime's) that do not exist here."""
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it was gone before
            os._exit(1)


def _compile_numbered(index: int, lenient: bool) -> bytes | TVMError:
    assert _work is not None
    jobs, target = _work
    return _tried(jobs[index], target) if lenient else _compile(jobs[index], target)


def _tried(job: Job, target: Target) -> bytes | TVMError:
    """The kernel, or the error."""
    try:
        return _compile(job, target)
    except TVMError as error:
        return BuildError(str(error))


def _compile(job: Job, target: Target) -> bytes:
    try:
        return compile_kernel(job, target).packed()
    except TVMError as error:
        raise BuildError(f"{job.label}: {error}\n  in the fused function\n{job.fn}") from error
    except Exception as error:  # its type may not be picklable
        raise InternalError(
            f"{job.label}: {type(error).__name__}: {error}\n  in the fused function\n{job.fn}"
        ) from error


def _weight(job: Job) -> int:
    """A rough estimate of the compile time of a job: one with constants is a convolution or a product."""
    return 10 * len(job.constants) + job.label.count("_")


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _can_fork() -> bool:
    return (
        "fork" in multiprocessing.get_all_start_methods()
        and sys.platform != "darwin"
        and not multiprocessing.current_process().daemon
    )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Job], None]]:
    """A progress bar with the operator's name on stderr, if that is a terminal."""
    if total <= _FEW or not sys.stderr.isatty():
        yield lambda job: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: list[Any] = [
        TextColumn("compiling"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda job: bar.update(task, advance=1, description=job.label[:60])
