"""Polls for interrupts (Ctrl-C) in compiled code, so that it returns to Python.

    for i in range(1000000):                 for c in range(0, 1000000, 4096):
        B[i] = A[i] + 1            ->            if *watch: return "interrupted"
                                                 for i in range(c, min(c + 4096, 1000000)):
                                                     B[i] = A[i] + 1

`watch` is a flag that the process's signal handler sets. It is polled once in some microseconds of work, in the
outermost possible loop, and only by functions that run for milliseconds, or for an unknown time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.expr import Call, const_value
from ...ir.module import GlobalVar
from ...ir.stmt import BufferStore, Evaluate, For, SeqStmt, Stmt
from ...runtime.library import INTERRUPTED

if TYPE_CHECKING:
    from .emit import FunctionEmitter

INTERRUPT_SYMBOLS = ("__tw_interrupt", "__tw_chained", "__tw_signal")
WATCHES = "define weak_odr ptr @__tw_watch()"  # in the text of a module that polls

# Work is counted in stores, of numbers or of vectors: some nanoseconds each.
_OFTEN = 1 << 14  # at most one poll in this much work
_SELDOM = 1 << 23  # at least one poll in this much work, where possible
_SOME = 64  # iterations between polls of a loop around loops that poll only if they are long
LONG = 1 << 18  # iterations of a long loop
_SHORT = 1 << 22  # a function with less work does not poll

# Only the main thread gets the flag, which is reset first. Without a runtime that sets the pointer there are no
# interrupts. The runtime installs the handler, with the handler to call next.
RUNTIME = """
@__tw_interrupt = weak_odr global ptr null
@__tw_chained = weak_odr global { ptr, ptr } zeroinitializer
@__tw_never = internal global i32 0
declare ptr @pthread_self()
define weak_odr ptr @__tw_watch() nounwind {
  %process = load ptr, ptr @__tw_interrupt
  %alone = icmp eq ptr %process, null
  br i1 %alone, label %never, label %ask
ask:
  %thread = call ptr @pthread_self()
  %main = load ptr, ptr %process
  %ours = icmp eq ptr %thread, %main
  br i1 %ours, label %watch, label %never
watch:
  %word = getelementptr i8, ptr %process, i64 8
  store volatile i32 0, ptr %word
  ret ptr %word
never:
  ret ptr @__tw_never
}
define weak_odr void @__tw_signal(i32 %number, ptr %about, ptr %context) nounwind {
  %word = load ptr, ptr @__tw_chained
  store volatile i32 1, ptr %word
  %next = load ptr, ptr getelementptr ({ ptr, ptr }, ptr @__tw_chained, i32 0, i32 1)
  call void %next(i32 %number, ptr %about, ptr %context)
  ret void
}
"""


def has_word(triple: str) -> bool:
    """Whether programs for a triple have threads and signals as POSIX has them."""
    return "linux" in triple or "apple" in triple or "darwin" in triple


def places(body: Stmt) -> dict[Stmt, int] | None:
    """The loops in which a function polls, with the number of iterations between two polls; None if it does not poll.

    A negative number is for a loop that polls only if it is long at run time.
    """
    work = _Work()
    total = work.of(body)
    if total is not None and total <= _SHORT and not work.calls:
        return None
    found: dict[Stmt, int] = {}
    _choose(body, work, found)
    return found if found or work.calls else None


def look(f: FunctionEmitter) -> None:
    """Return from the function if the flag is set."""
    word = f.effect(f"load volatile i32, ptr {f.watch}")
    go_on, stop = f.label("calm"), f.label("interrupted")
    f.branch_if(f.effect(f"icmp eq i32 {word}, 0"), go_on, stop, ", !prof !1")
    f.start(stop)
    f.fail(INTERRUPTED, "it was interrupted; its results are incomplete")
    f.start(go_on)


class _Work:
    """The number of stores of a statement; None if unknown."""

    def __init__(self) -> None:
        self.known: dict[Any, int | None] = {}
        self.calls = False  # whether it calls other compiled functions

    def of(self, s: Any) -> int | None:
        if s not in self.known:
            self.known[s] = self._count(s)
        return self.known[s]

    def _count(self, s: Any) -> int | None:
        if isinstance(s, BufferStore):
            return 1
        if isinstance(s, Evaluate):
            if isinstance(s.value, Call) and isinstance(s.value.op, GlobalVar):
                self.calls = True
            return 1
        inner = self._sum(children(s))
        if isinstance(s, For):
            extent = const_value(s.extent)
            return None if inner is None or extent is None else inner * int(extent)
        return None if s.__class__.__name__ == "While" else inner

    def _sum(self, parts: list[Any]) -> int | None:
        total = 0
        counts = [self.of(part) for part in parts]
        for count in counts:
            if count is None:
                return None
            total += count
        return total


def children(s: Any) -> list[Any]:
    """The statements directly in a statement."""
    if isinstance(s, SeqStmt):
        return list(s.seq)
    return [c for name in ("body", "then_case", "else_case") if (c := getattr(s, name, None)) is not None]


_NOT, _IF_LONG, _SURELY = range(3)


def _choose(s: Any, work: _Work, found: dict[Stmt, int], nested: bool = False) -> int:
    """Choose the loops in a statement that poll; returns whether there are any."""
    total = work.of(s)
    if total is not None and total <= _SHORT:
        return _NOT
    if not isinstance(s, For):
        inside = max([_choose(part, work, found, nested) for part in children(s)], default=_NOT)
        if s.__class__.__name__ == "While":
            found[s] = 1
        return inside
    each = work.of(s.body)
    if each is not None and each <= _SELDOM:
        block = max(1, _OFTEN // max(1, each))
        # Most inner loops of unknown extent are short, and cost one comparison.
        if_long = total is None and nested
        found[s] = -block if if_long else block
        return _IF_LONG if if_long else _SURELY
    inside = max([_choose(part, work, found, True) for part in children(s)], default=_NOT)
    if inside != _SURELY:
        found[s] = _SOME if inside == _IF_LONG else 1
    return _SURELY
