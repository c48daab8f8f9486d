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
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from typing import Any, NamedTuple, Protocol

from ...codegen.llvm.objects import cache_of_this_build
from ...cpus import usable_cpus
from ...forks import forking, new_in_child
from ...ir.errors import BuildError, InternalError, TVMError
from ...ir.function import PrimFunc
from ...target import Target
from ..expr import Function
from ..op.implementation import OpImplementation, best_implementation, implementations
from ..op.registry import RelayOp
from .kernel import Job, Kernel, compile_kernel
from .lower import loops_of

_FEW = 3  # up to this many kernels are compiled faster in this process

_YIELDS = 10  # how much nicer workers are than the model that runs
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
    """The kernels of all jobs by key; jobs that are refused are added to `failed` if it is given."""
    made, missing = from_cache(jobs)
    if not missing:
        return warned(made)
    with _progress(len(missing)) as advance:
        for job, result in _compiled(missing, target, advance, failed is not None):
            if isinstance(result, TVMError):
                assert failed is not None
                failed[job.key] = result
                continue
            made[job.key] = kept(job, result)
    return warned(made)


def from_cache(jobs: Sequence[Job]) -> tuple[dict[str, Kernel], list[Job]]:
    """The kernels that are in the cache by key, and the jobs that are left, each once."""
    cache = cache_of_this_build()
    wanted = {job.key: job for job in jobs}
    made: dict[str, Kernel] = {}
    if cache is not None:
        for key, job in wanted.items():
            data = cache.get(key) if job.cached else None
            if data is not None:
                made[key] = Kernel.unpacked(data)
    return made, [job for key, job in wanted.items() if key not in made]


def kept(job: Job, result: bytes) -> Kernel:
    """The kernel that a worker made, which the cache keeps."""
    cache = cache_of_this_build()
    if cache is not None and job.cached:
        cache.put(job.key, result)
    return Kernel.unpacked(result)


class TECompiler:
    """The door to the kernels that this process has compiled; those on disk are `config.cache_dir`'s."""

    def clear(self) -> None:
        """Forget the kernels that this process keeps for evaluation at compile time."""
        from .single import forget

        forget()


def get() -> TECompiler:
    """The compiler of kernels."""
    return TECompiler()


def warned(made: dict[str, Kernel]) -> dict[str, Kernel]:
    """Repeat the warnings of kernels, from other processes or from the cache."""
    for text in dict.fromkeys(text for kernel in made.values() for text in kernel.warnings):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return made


def _compiled(
    jobs: list[Job], target: Target, advance: Callable[[Job], None], lenient: bool
) -> Iterator[tuple[Job, bytes | TVMError]]:
    workers = min(usable_cpus(), len(jobs))
    if workers < 2 or len(jobs) <= _FEW or not can_fork():
        for job in jobs:
            advance(job)
            yield job, _tried(job, target) if lenient else compiled(job, target)
        return
    with _forking:  # one model at a time has all cores
        for job, result in kernel_workers(jobs, target, lenient).results():
            advance(job)
            yield job, result


def kernel_workers(
    jobs: Sequence[Job], target: Target, lenient: bool = False, background: bool = False
) -> Workers:
    """Workers that compile kernels; if `lenient`, an error is the result of its job."""
    here = target if target.is_cpu else Target("llvm")
    _ = here.cpu  # detected once, before the fork
    longest_first = sorted(jobs, key=_weight, reverse=True)  # for load balance
    return Workers(longest_first, partial(_tried if lenient else compiled, target=target), background)


class Labelled(Protocol):
    """A job of workers."""

    @property
    def label(self) -> str:
        """What it makes, for display."""


class Workers:
    """Forks of this process that do jobs, each the next one that is left; they end with this process.

    `background` workers have a low priority, so that they yield to the model that runs meanwhile.
    """

    def __init__(
        self, jobs: Sequence[Labelled], make: Callable[[Any], Any], background: bool = False
    ) -> None:
        self.jobs = jobs
        context = multiprocessing.get_context("fork")
        turn = self._turn = context.Value("i", 0)  # shared as long as this object holds it
        self.processes: list[Any] = []
        self._sources: list[Any] = []
        for _number in range(min(usable_cpus(), len(self.jobs))):
            source, sink = context.Pipe(duplex=False)
            given = (os.getpid(), background, turn, sink, self.jobs, make)
            process = context.Process(target=_serve, args=given, daemon=True)
            with forking():
                process.start()
            sink.close()
            self.processes.append(process)
            self._sources.append(source)

    def results(self) -> Iterator[tuple[Any, Any]]:
        """The jobs as they are done. An error ends all of them."""
        left = dict(enumerate(self.jobs))
        sources = list(self._sources)
        try:
            while left and sources:
                ready: list[Any] = wait(sources)
                for source in ready:
                    try:
                        number, result = source.recv()
                    except EOFError:
                        sources.remove(source)
                        continue
                    job = left.pop(number)
                    if isinstance(result, _Failed):
                        raise result.error
                    yield job, result
            if left:
                labels = ", ".join(job.label for job in list(left.values())[: len(self.processes) + 2])
                raise BuildError(
                    "a compiling process ended by itself (out of memory, or a fault in LLVM), while one of these "
                    f"was compiled: {labels}"
                )
        except BaseException:
            self.kill()  # they may be in LLVM for long, and the result is not needed any more
            raise
        finally:
            for process in self.processes:
                process.join()
            for source in self._sources:
                source.close()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


class _Failed(NamedTuple):
    """An error that ends the compilation of a model."""

    error: Exception


def _serve(
    parent: int, background: bool, turn: Any, sink: Any, jobs: Sequence[Any], make: Callable[[Any], Any]
) -> None:
    """Be a worker: do the next job until none is left."""
    if not background:  # the thread that forks waits
        _end_with(parent)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if background:
        os.nice(_YIELDS)
    while True:
        with turn.get_lock():
            number = turn.value
            turn.value = number + 1
        if number >= len(jobs) or os.getppid() != parent:
            return
        result: Any
        try:
            result = make(jobs[number])
        except Exception as error:
            result = _Failed(error)
        sink.send((number, result))


def _end_with(parent: int) -> None:
    """End with the parent. Garbage from before the fork is not collected: its finalizers may wait for threads
    (onnxruntime's) that do not exist here."""
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it was gone before
            os._exit(1)


def _tried(job: Job, target: Target) -> bytes | TVMError:
    """The kernel, or the refusal; an error of ours is none."""
    try:
        return compiled(job, target)
    except InternalError:
        raise
    except TVMError as error:
        return BuildError(str(error))


def compiled(job: Job, target: Target) -> bytes:
    """The kernel of a job, serialized."""
    try:
        return compile_kernel(job, target).packed()
    except Exception as error:  # its type may not be picklable
        where = f"in the fused function\n{job.fn}"
        if isinstance(error, TVMError) and not isinstance(error, InternalError):
            raise BuildError(f"{job.label}: {error}\n  {where}") from error
        raise InternalError(f"{job.label}: {type(error).__name__}: {error}\n  {where}") from error


def _weight(job: Job) -> int:
    """A rough estimate of the compile time of a job: one with constants is a convolution or a product."""
    return 10 * len(job.constants) + job.label.count("_")


def can_fork() -> bool:
    """Whether workers can be forked here."""
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
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [
        TextColumn("compiling"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left  {task.description}"),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda job: bar.update(task, advance=1, description=job.label[:60])
