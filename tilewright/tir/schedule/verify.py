"""Whether a scheduled program still computes what its origin does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...homes import home_of
from ...ir.buffer import Buffer
from ...ir.deep import deeply
from ...ir.errors import LoweringError, ScheduleError, TVMError
from ...ir.expr import BufferLoad, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import post_order_visit, pre_order, rewrite, statements, substitute
from ...ir.module import IRModule
from ...ir.stmt import Block, BlockRealize, For, ForKind, Stmt
from ..analysis.threads import is_fragment, is_hardware_loop
from ..annotations import BULK_COPY, SCAN_THREADS

if TYPE_CHECKING:
    from .schedule import Schedule

LIMIT = 100_000  # block runs that the interpreter is asked for; larger programs run as machine code
_SIZES = (5, 7, 6, 9, 4, 8)  # what symbols in shapes are taken to be
_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True, slots=True)
class Report:
    """The report of `verify`. Its truth value is always true: a difference raises an error."""

    functions: tuple[str, ...]
    how: str  # "interpreter" or "machine code"
    elements: int  # how many elements were compared
    seed: int | None
    kernels: str = ""  # "agree", or why the kernels of a GPU were not run; nothing where there are none

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        names = ", ".join(self.functions) or "nothing"
        text = (
            f"{names}: {self.elements} elements agree with the origin (run by {self.how}, seed {self.seed})"
        )
        if self.kernels == "agree":
            return f"{text}, and so do its kernels, thread by thread"
        return f"{text}; its kernels were not run: {self.kernels}" if self.kernels else text


@deeply
def verify(sch: Schedule, seed: int = 0, arrays: Sequence[Any] | None = None) -> Report:
    """Run the scheduled functions and their origins on the same random inputs, and compare what they leave.

    Small programs are run by the interpreter, which also reports accesses out of bounds, reads of
    unwritten memory and races. Programs of more than about a hundred thousand steps are compiled, both of
    them, and loops bound to thread axes then run one iteration after the other. Symbols in shapes are
    given small values.

    Where loops are bound to the threads of a GPU, small programs are also lowered to kernels with their
    barriers and run thread by thread, if all of their blocks are in kernels.
    """
    names: list[str] = []
    ways: list[str] = []
    kernels: list[str] = []
    elements = 0
    for gv, after in sch.mod.functions.items():
        before = sch.origin.functions.get(gv)
        if not isinstance(after, PrimFunc) or not isinstance(before, PrimFunc) or after is before:
            continue
        _check_parameters(before, after)
        given = list(arrays) if arrays is not None else random_arguments(before, seed)
        how, count, threads = _compare(before, after, given, gv.name_hint, sch)
        names.append(gv.name_hint)
        kernels += [threads] if threads else []
        ways.append(how)
        elements += count
    how = "machine code" if "machine code" in ways else "interpreter"
    told = next((k for k in kernels if k != "agree"), "agree" if kernels else "")
    return Report(tuple(names), how, elements, seed if arrays is None else None, told)


def check_step(sch: Schedule) -> None:
    """Verify after the last step of a trace, and take the step back and say which it was if it broke something."""
    last = sch.trace.insts[-1]
    earlier = (sch.trace.insts[-2].after if len(sch.trace) > 1 else None) or sch.origin
    if sch.mod is earlier or not _same_parameters(sch):
        return
    try:
        verify(sch)
    except ScheduleError as why:
        line = sch.trace.as_python()[-1]
        place = f"\n  at {last.span}" if last.span is not None else ""
        sch.trace.insts.pop()
        sch.state.mod = earlier
        raise ScheduleError(f"step {len(sch.trace)} changed the result: {line}{place}\n\n{why}") from None


# ---------------------------------------------------------------------------- running
def _compare(
    before: PrimFunc, after: PrimFunc, given: list[Any], name: str, sch: Schedule
) -> tuple[str, int, str]:
    import numpy as np

    sizes = _sizes(before, given)
    small = max(_work(f, sizes) for f in (before, after)) <= LIMIT
    how = "interpreter" if small else "machine code"
    want, got = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in given] for _ in range(2))
    at_once = _at_once(after)
    _run(before, want, small, f"the origin of {name}", sch)
    _run(after, got, small or bool(at_once), f"the scheduled {name}", sch)
    count = _compare_arrays(before, want, got, name, how)
    threads = ""
    if small and any(is_hardware_loop(m) or _is_kernel(m) for m in pre_order(after.body)):
        threads = at_once or _unbound(after.body)
        if not threads:
            held = [np.copy(a) if isinstance(a, np.ndarray) else a for a in given]
            threads = _run_kernels(after, held, f"the kernels of {name}")
            if threads == "agree":
                _compare_arrays(before, want, held, name, "interpreter, thread by thread")
    return how, count, threads


def _compare_arrays(before: PrimFunc, want: list[Any], got: list[Any], name: str, how: str) -> int:
    """Compare what two runs left in the arguments; how many elements that were."""
    import numpy as np

    count = 0
    for p, a, b in zip(before.params, want, got, strict=True):
        if isinstance(a, np.ndarray):
            held = before.buffer_map.get(p)
            _same(held.name if held is not None else p.name, a, b, name, how)
            count += a.size
    return count


def _at_once(func: PrimFunc) -> str:
    """What a function does for many threads at once, in words, which is the interpreter's alone to run."""
    blocks = [m for m in statements(func.body) if isinstance(m, Block)]
    if any(is_fragment(b.scope()) for m in blocks for b in m.alloc_buffers):
        return "tensor cores work for all threads of a warp at once"
    if any(BULK_COPY in m.annotations for m in blocks):
        return "the copy engine works for all threads of a block at once"
    return ""


def _is_kernel(n: Any) -> bool:
    """Whether lowering makes a kernel of a block."""
    return isinstance(n, Block) and SCAN_THREADS in n.annotations


def _unbound(n: Any) -> str:
    """Which block is in no kernel, in words; nothing if all of them are."""
    if is_hardware_loop(n) or (isinstance(n, BlockRealize) and _is_kernel(n.block)):
        return ""
    if isinstance(n, BlockRealize):
        blocks = [m for m in pre_order(n.block) if isinstance(m, BlockRealize)]
        if not blocks:
            return f"block {n.block.name_hint} has no loop that is bound to threads"
    return next((w for c in n.children() if isinstance(c, Stmt) and (w := _unbound(c))), "")


def _run_kernels(func: PrimFunc, arrays: list[Any], what: str) -> str:
    """Lower a function to kernels and run these; `agree`, or why they cannot be made."""
    from ..interpret import InterpreterError, interpret

    lower_kernels = home_of("compiler").lower_kernels
    mod = IRModule({"main": func.with_attr("global_symbol", "main")})
    try:
        lowered = lower_kernels(mod)["main"]
    except LoweringError as why:
        return str(why)
    try:
        interpret(lowered, *arrays)
    except InterpreterError as why:
        raise ScheduleError(f"{what} cannot be run: {why}") from why
    return "agree"


def _run(func: PrimFunc, arrays: list[Any], small: bool, what: str, sch: Schedule) -> None:
    from ..interpret import InterpreterError, interpret

    compiler = home_of("compiler")
    try:
        if small:
            # Memory that is used inside a loop only belongs to its iterations, as it will when lowered.
            interpret(compiler.with_planned_memory(func), *arrays, module=sch.mod)
        else:
            compiler.build(_plain_threads(func), target="llvm")(*arrays)
    except InterpreterError as why:
        raise ScheduleError(f"{what} cannot be run: {why}") from why
    except TVMError as why:
        raise ScheduleError(f"{what} cannot be compiled: {why}") from why


def _plain_threads(func: PrimFunc) -> PrimFunc:
    """Loops bound to thread axes made serial, and no overlap: block programs mean one statement after the other."""

    def serial(n: For) -> For | None:
        notes = {k: v for k, v in n.annotations.items() if not k.startswith("software_pipeline")}
        if n.kind is ForKind.THREAD_BINDING:
            return n.replace(kind=ForKind.SERIAL, thread_binding=None)
        return None if len(notes) == len(n.annotations) else n.replace(annotations=notes)

    return rewrite(func, {For: serial})


def _same(name: str, want: Any, got: Any, function: str, how: str) -> None:
    import numpy as np

    if want.dtype.kind in "iub":
        differ = want != got
    else:
        tolerance = _TOLERANCE.get(str(want.dtype), 1e-2)
        a, b = want.astype("float64"), got.astype("float64")
        with np.errstate(invalid="ignore"):
            close = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        differ = ~close
    if not differ.any():
        return
    where = tuple(int(i) for i in np.argwhere(differ)[0])
    element = f"{name}[{', '.join(map(str, where))}]"
    raise ScheduleError(
        f"the schedule of {function} does not compute what its origin does: {element} is {got[where]!s} "
        f"and should be {want[where]!s}; {int(differ.sum())} of {want.size} elements differ (run by {how})"
    )


def _work(func: PrimFunc, sizes: dict[Var, int]) -> int:
    """About how many times blocks and statements run."""
    ana = Analyzer()
    known = {v: const(n, v.dtype) for v, n in sizes.items()}
    total = 0
    stack: list[tuple[Any, int]] = [(func.body, 1)]
    while stack:
        n, times = stack.pop()
        if isinstance(n, For):
            extent = const_value(ana.simplify(substitute(n.extent, known)))
            times *= int(extent) if extent is not None else max(_SIZES)
        elif isinstance(n, BlockRealize):
            total += times
        stack.extend((c, times) for c in n.children() if isinstance(c, Stmt))
    return total


# ---------------------------------------------------------------------------- arguments
def _check_parameters(before: PrimFunc, after: PrimFunc) -> None:
    for p, q in zip(before.params, after.params, strict=True):
        a, b = before.buffer_map.get(p), after.buffer_map.get(q)
        if a is not None and b is not None and not _alike(a, b):
            raise ScheduleError(
                f"parameter {a.name} was {_described(a)} and is {_described(b)} now: "
                "programs that take other arguments cannot be compared"
            )


def _same_parameters(sch: Schedule) -> bool:
    for gv, f in sch.mod.functions.items():
        before = sch.origin.functions.get(gv)
        if isinstance(f, PrimFunc) and isinstance(before, PrimFunc):
            pairs = zip(before.buffer_params(), f.buffer_params(), strict=True)
            if not all(_alike(a, b) for a, b in pairs):
                return False
    return True


def _alike(a: Buffer, b: Buffer) -> bool:
    from ...ir.equal import structural_equal

    return a is b or (
        a.dtype == b.dtype
        and len(a.shape) == len(b.shape)
        and all(structural_equal(x, y, map_free_vars=True) for x, y in zip(a.shape, b.shape, strict=True))
    )


def _described(b: Buffer) -> str:
    return f"({', '.join(map(str, b.shape))}) of {b.dtype}"


def random_arguments(func: PrimFunc, seed: int) -> list[Any]:
    """Small numbers for a function's parameters; what is used as an index stays in bounds."""
    import numpy as np

    rng = np.random.default_rng(seed)
    sizes = _symbols(func)
    limits = _index_limits(func, sizes)
    out: list[Any] = []
    for p in func.params:
        b = func.buffer_map.get(p)
        if b is None:
            out.append(sizes.get(p, 3))
            continue
        shape = [_value(d, sizes, b.name) for d in b.shape]
        out.append(np.asarray(_random(rng, b, shape, limits.get(b))))
    return out


def _random(rng: Any, b: Buffer, shape: list[int], limit: int | None) -> Any:
    import numpy as np

    dtype = str(b.dtype)
    if b.dtype.is_bool:
        return rng.integers(0, 2, shape).astype("bool")
    if b.dtype.is_int or b.dtype.is_uint:
        low = 0 if limit is not None or b.dtype.is_uint else -8
        return rng.integers(low, max(1, limit) if limit is not None else 8, shape).astype(dtype)
    # Quarters: sums of them are exact in whatever order.
    data = rng.integers(-8, 9, shape) / 4.0
    if b.dtype.is_float and dtype in ("float16", "float32", "float64"):
        return data.astype(dtype)
    import ml_dtypes

    return np.asarray(data).astype(getattr(ml_dtypes, dtype))


def _symbols(func: PrimFunc) -> dict[Var, int]:
    """A small value for each symbol of the shapes and each scalar parameter."""
    found: dict[Var, int] = {}

    def see(n: Any) -> None:
        if isinstance(n, Var) and n not in found and (n.dtype.is_int or n.dtype.is_uint):
            found[n] = _SIZES[len(found) % len(_SIZES)]

    for b in func.buffer_map.values():
        for d in b.shape:
            post_order_visit(d, see)
    for p in func.params:
        if p not in func.buffer_map:
            see(p)
    return found


def _sizes(func: PrimFunc, given: Sequence[Any]) -> dict[Var, int]:
    """The symbols of the shapes as the arguments have them."""
    out = _symbols(func)
    for p, a in zip(func.params, given, strict=True):
        b = func.buffer_map.get(p)
        if b is None:
            if p in out:
                out[p] = int(a)
            continue
        for d, n in zip(b.shape, a.shape, strict=True):
            if isinstance(d, Var):
                out[d] = int(n)
    return out


def _value(e: PrimExpr, sizes: dict[Var, int], name: str) -> int:
    made = Analyzer().simplify(substitute(e, {v: const(n, v.dtype) for v, n in sizes.items()}))
    value = const_value(made)
    if value is None:
        raise ScheduleError(
            f"the size `{e}` of {name} is not known, so no arguments can be drawn: pass arrays="
        )
    return int(value)


def _index_limits(func: PrimFunc, sizes: dict[Var, int]) -> dict[Buffer, int]:
    """For integer parameters that are used in indices, the size of the smallest dimension they index."""
    params = set(func.buffer_map.values())
    out: dict[Buffer, int] = {}

    def see(loads: Iterable[Any], size: int) -> None:
        for m in loads:
            if isinstance(m, BufferLoad) and m.buffer in params:
                out[m.buffer] = min(size, out.get(m.buffer, size))

    for n in pre_order(func.body):
        indices = getattr(n, "indices", None)
        buffer = getattr(n, "buffer", None)
        if indices is None or not isinstance(buffer, Buffer):
            continue
        for i, d in zip(indices, buffer.shape, strict=True):
            if isinstance(d, PrimExpr):
                try:
                    see(pre_order(i), _value(d, sizes, buffer.name))
                except ScheduleError:
                    continue
    return out
