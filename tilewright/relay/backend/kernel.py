"""Kernels: the machine code of fused functions, and its cache keys."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ... import config
from ...codegen.llvm.linked import Unit, unit_of
from ...codegen.llvm.objects import VERSION
from ...compiler.build import build
from ...ir.deep import deep_programs
from ...ir.errors import InternalError, TVMError
from ...ir.expr import SizeVar
from ...ir.module import IRModule
from ...ir.op import rules_key
from ...ir.transform import Pass, PassContext
from ...runtime.cache import digest
from ...target import Target
from ...tir.analysis.inplace import INPLACE
from ...tune.auto import asked
from ..expr import Call, Constant, Function, TupleGetItem
from ..op.implementation import has_strategy
from ..op.registry import RelayOp
from ..sizes import sizes_in
from ..transform.offload import is_offloaded, why_on_host
from ..transform.plan_devices import is_on_host
from .fetch_ahead import FetchAhead
from .lower import inner_order, loops_of, lower_function, task_of_function
from .scratch import Scratch
from .work import work_data


@dataclass(frozen=True, slots=True)
class Job:
    """A fused function to be compiled. Equal keys give the same code."""

    fn: Function
    constants: tuple[int, ...]  # the indices of the constant inputs
    key: str
    label: str  # its operators, for display
    cached: bool  # whether the key determines its code
    plain: bool = False  # left unscheduled: it runs once
    planned: bool = False  # its caller passes its workspaces
    ahead: bool = False  # it prefetches data for its caller
    record: Any = None  # the tuning record of its schedule
    external: bool = False  # another code generator makes its code: see external.py

    @property
    def symbol(self) -> str:
        return f"tvmgen_{self.label}_{self.key[:12]}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """Compiled code of a fused function, and of the packer of its constants.

    Its parameters are inputs, results, the constants of `labels`, and workspaces of the sizes in `scratch`.
    """

    symbol: str
    code: Unit
    before: Unit | None
    labels: tuple[str, ...]
    constants: tuple[str, ...]
    scratch: tuple[tuple[str, int], ...] = ()
    inside: int = 0  # bytes that each thread allocates in addition
    warnings: tuple[str, ...] = ()  # warnings of its compilation, possibly by another process
    device: Any = None  # the code of a kernel for a GPU or an accelerator, as data
    on_host: str = ""  # why it runs on the host in a model for a device
    slots: int = 0  # prefetch slots; if there are any, its last parameters are the prefetches
    compiler: str = (
        ""  # the code generator that made it; its constants are then where they are among the inputs
    )
    external: Any = None  # the function of another engine that it calls
    work: Any = None  # its operations and bytes, as expressions of its sizes: see work.py

    @property
    def about(self) -> Any:
        """The description of the function."""
        return self.code.functions[0] if self.device is None else self.device["function"]

    def packed(self) -> bytes:
        """Serialized: a line of metadata, then the object files."""
        head = {name: getattr(self, name) for name in (*_LISTS, *_PLAIN)}
        head["code"] = self.code.head()
        head["before"] = None if self.before is None else self.before.head()
        parts = [json.dumps(head).encode(), b"\n", self.code.code]
        return b"".join([*parts, *([] if self.before is None else [self.before.code])])

    @staticmethod
    def unpacked(data: bytes) -> Kernel:
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        size = head["code"]["bytes"]
        before = None if head["before"] is None else Unit.of(head["before"], rest[size:])
        code = Unit.of(head["code"], rest[:size])
        lists: dict[str, Any] = {name: tuple(head[name]) for name in _LISTS}
        lists["scratch"] = tuple((name, size) for name, size in head["scratch"])
        return Kernel(code=code, before=before, **lists, **{name: head[name] for name in _PLAIN})


# The fields of a kernel besides its code, as they are serialized: tuples, and plain values.
_LISTS = ("labels", "constants", "scratch", "warnings")
_PLAIN = ("symbol", "inside", "device", "on_host", "slots", "work")


def description(fn: Function) -> str:
    """A canonical text, equal for two fused functions if and only if they are structurally equal."""
    number: dict[Any, int] = {p: i for i, p in enumerate(fn.params)}
    lines = [f"{i}: {p.checked_type}{_likely(p.checked_type)}" for i, p in enumerate(fn.params)]
    for e in inner_order(fn):
        if e in number:
            continue
        number[e] = len(number)
        below = " ".join(str(number[b]) for b in e.children())
        own = type(e).__name__
        if isinstance(e, Call):
            attrs = sorted((k, repr(v)) for k, v in e.attrs.items()) if e.attrs else ()
            own = f"{e.op.name} {attrs}"
        elif isinstance(e, TupleGetItem):
            own = f"field {e.index}"
        elif isinstance(e, Constant):
            own = f"{e.data.dtype} {e.data.shape} {e.numpy().tobytes()!r}"
        lines.append(f"{number[e]}: {own} ({below}) {e.checked_type}")
    return "\n".join(lines)


def _likely(kind: Any) -> str:
    """The values for which schedules are chosen, of the dynamic sizes in a type."""
    found = [f"{v.name} = {v.likely}" for v in sizes_in(kind) if isinstance(v, SizeVar)]
    return f" ({', '.join(found)})" if found else ""


def operators(fn: Function) -> list[RelayOp]:
    """The operators of a fused function, in the order in which they are computed."""
    return [e.op for e in inner_order(fn) if isinstance(e, Call) and isinstance(e.op, RelayOp)]


def label_of(fn: Function) -> str:
    """The operators of a fused function, for display."""
    return re.sub(r"\W", "_", "fused_" + "_".join(op.name for op in operators(fn)))[:64]


def job_of(
    fn: Function,
    constants: Sequence[int],
    target: Target,
    plain: bool = False,
    planned: bool = False,
    ahead: bool = False,
) -> Job:
    """The compilation job of a fused function."""
    ops, text = operators(fn), description(fn)
    key = digest(
        "kernel", *producer(), str(target), repr(_machine(target)), repr(config.code_key()),
        _settings(), text, repr(tuple(constants)), plain, planned, ahead, is_offloaded(fn), is_on_host(fn),
    )  # fmt: skip
    # what numbers of the user's own types become depends on what is registered in this process
    ours = "custom[" not in text and all(
        (getattr(op.compute, "__module__", "") or "").startswith("tilewright.") and not has_strategy(op)
        for op in ops
    )
    label = label_of(fn)
    record = None if plain or not asked.get() else _recorded(fn, tuple(constants), target, key)
    if record is not None:
        key = digest(key, json.dumps([record.trace, record.decisions], sort_keys=True))
    return Job(fn, tuple(constants), key, label, ours, plain, planned, ahead, record)


def _recorded(fn: Function, constants: tuple[int, ...], target: Target, key: str) -> Any:
    """The tuning record of a fused function in the active histories."""
    from ...tune.records.history import lookup

    known = asked.get()[-1].tasks  # a model has the same function many times
    if key not in known:
        known[key] = task_of_function(fn, constants, target, label_of(fn))
    return lookup(known[key])


def _settings() -> str:
    ctx = PassContext.current()
    options = {k: v for k, v in ctx.config.items() if k.startswith(("tir.", "tilewright."))}
    held = sorted(options.items(), key=lambda kv: kv[0])
    return repr((ctx.opt_level, sorted(ctx.disabled_pass), held, rules_key()))


def _machine(target: Target) -> tuple[Any, ...]:
    if not target.has("aot_executor"):
        device = target.accelerator if target.is_accelerator else target.gpu
        return (repr(device), *_machine(Target("llvm")))  # packers and fallbacks run on this machine
    settings = target.llvm
    cpu = replace(target.cpu, features=frozenset())  # a set prints in another order in each process
    own = sorted(target.cpu.features)
    return (settings.triple, settings.cpu, settings.features, settings.abi, repr(cpu), own)


@lru_cache(maxsize=1)
def producer() -> tuple[str, ...]:
    """The versions that determine the code, including a hash of the compiler's own sources."""
    from ...codegen.llvm.engine import llvm_version

    found: list[str] = []
    folders = [str(Path(__file__).parents[2])]
    start = len(folders[0]) + 1
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    stat = entry.stat()
                    found.append(f"{entry.path[start:]} {stat.st_size} {stat.st_mtime_ns}")
    return (VERSION, *llvm_version(), digest(*sorted(found)))


def compile_kernel(job: Job, target: Target) -> Kernel:
    """Schedule, lower and compile a fused function."""
    if not target.has("aot_executor"):
        return _for_device(job, target)
    scratch, fetched = Scratch(), FetchAhead(target.cpu.preferred_vector_bits)
    with _recorded_warnings() as told:
        lowered = lower_function(job.fn, job.constants, target, job.symbol, job.plain, job.record)
    code = unit_of(_built(job, lowered, target, scratch, fetched))
    before = None
    if lowered.before is not None:
        # it runs on this machine for any target
        here = target if target.llvm.is_host else Target("llvm")
        name = f"{job.symbol}_pack"
        func = lowered.before.with_attr("global_symbol", name)
        before = unit_of(build(IRModule({name: func}), target=here))
    return Kernel(
        job.symbol,
        code,
        before,
        lowered.labels,
        lowered.constants,
        tuple(scratch.given),
        scratch.inside,
        tuple(told),
        slots=fetched.slots,
        work=None if lowered.plain is None else work_data(lowered.plain),
    )


def _built(job: Job, lowered: Any, target: Target, scratch: Scratch, fetched: FetchAhead) -> Any:
    """The module of a lowered job, which tells `scratch` and `fetched` what it needs."""
    last = [scratch.taken()] * job.planned + [fetched.added()] * job.ahead
    with _with_last(last) if last else nullcontext():
        # a model's memory plan guarantees that arguments do not overlap
        func = lowered.func.with_attr(INPLACE, None)
        return build(IRModule({job.symbol: func}), target=target)


def settings_of_now(target: Target) -> Callable[[], AbstractContextManager[Any]]:
    """The settings that determine code as they are now, without instruments, as a context for later or another
    thread."""
    ctx, knobs = PassContext.current(), {k: v for k, v in config.code_key() if v is not None}

    @contextmanager
    def again() -> Iterator[None]:
        same = PassContext(ctx.opt_level, ctx.required_pass, ctx.disabled_pass, config=ctx.config)
        with deep_programs(), config.using(**knobs), same, target:
            yield

    return again


def texts_of(jobs: Iterable[Job], target: Target) -> Callable[[str], str]:
    """The kernels of jobs as LLVM IR (`ll`) or assembly (`asm`): a function that compiles them again, with the
    settings of now, since the cache has only their object code."""
    by_key = {job.key: job for job in jobs}
    again = settings_of_now(target)

    def text_of(job: Job, fmt: str) -> str:
        lowered = lower_function(job.fn, job.constants, target, job.symbol, job.plain, job.record)
        fetched = FetchAhead(target.cpu.preferred_vector_bits)
        return str(_built(job, lowered, target, Scratch(), fetched).get_source(fmt))

    def texts(fmt: str) -> str:
        with again():
            return "\n".join(text_of(job, fmt) for job in by_key.values())

    return texts


_NOTHING = Unit(b"", (), (), False)


def _on_host(job: Job) -> Kernel:
    """A kernel that the host runs in a model for a device."""
    host = Target("llvm")
    with host:
        return compile_kernel(replace(job, planned=False, ahead=False, record=None), host)


def _for_device(job: Job, target: Target) -> Kernel:
    """A kernel for a GPU or an accelerator; if there is none, the host runs the function, between copies."""
    if is_on_host(job.fn):
        return replace(_on_host(job), on_host="it is placed on the CPU")
    if target.is_accelerator:
        if not is_offloaded(job.fn):
            return replace(_on_host(job), on_host=why_on_host(job.fn, target))
        from .accelerator_kernel import chip_code as device_code
    else:
        from .device_kernel import device_code  # what only GPUs need is loaded when there is one

    try:
        with _recorded_warnings() as told:
            code, before, labels, names, scratch = device_code(
                job.fn, job.constants, target, job.symbol, job.record, job.planned
            )
    except InternalError:
        raise
    except TVMError as why:
        made = _on_host(job)
        reason = str(why).splitlines()[0]
        text = f"{job.label} runs on the host, between copies: there is no {target.kind.name} kernel for it ({reason})"
        return replace(made, warnings=(*made.warnings, text), on_host=reason)
    unit = None
    if before is not None:
        name, host = f"{job.symbol}_pack", Target("llvm")
        with host:
            unit = unit_of(build(IRModule({name: before.with_attr("global_symbol", name)}), target=host))
    work = work_data(loops_of(job.fn, job.constants, target)[0])
    return Kernel(job.symbol, _NOTHING, unit, labels, names, scratch, 0, tuple(told), code, work=work)


@contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """Collects warnings, for the process that requested the kernel."""
    out: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield out
    out += [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]


def _with_last(last: Sequence[Pass]) -> PassContext:
    """The current context, with more passes at the end of lowering."""
    ctx = PassContext.current()
    added = [*(ctx.config.get("tir.add_lower_pass") or ()), *((3, each) for each in last)]
    return PassContext(
        ctx.opt_level,
        ctx.required_pass,
        ctx.disabled_pass,
        instruments=ctx.instruments,
        config={**ctx.config, "tir.add_lower_pass": added},
    )
