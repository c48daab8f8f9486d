"""Where compiled code looks whether somebody wants it to end (Ctrl-C), so that Python gets its turn.

    for i in range(1000000):                 for c in range(0, 1000000, 4096):
        B[i] = A[i] + 1            ->            if *watch: return "interrupted"
                                                 for i in range(c, min(c + 4096, 1000000)):
                                                     B[i] = A[i] + 1

`watch` is a word that the process's signal handler sets. It is looked at once in some microseconds of work, as far
out as possible, and only by functions that run for milliseconds, or for who knows how long.
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
WATCHES = "define weak_odr ptr @__tw_watch()"  # in the text of a module that does

# Work is counted in stores, of numbers or of vectors: some nanoseconds each.
_OFTEN = 1 << 14  # no more than one look in so many
_SELDOM = 1 << 23  # no fewer, where it can be helped
_SOME = 64  # iterations of a loop around others that look only where they are long
LONG = 1 << 18  # iterations that make a loop long
_SHORT = 1 << 22  # what has no more of them is over before anybody is impatient

# The main thread, and it alone, gets the word to watch, and forgets what came before. Without a process that sets the
# pointer nobody is interrupted. The handler is installed by the runtime, which says whom to call next.
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
    """The loops in which a function looks, with how many iterations pass between two looks; None if it does not.

    A number below zero is for a loop that looks only if it turns out to be long.
    """
    work = _Work()
    total = work.of(body)
    if total is not None and total <= _SHORT and not work.calls:
        return None
    found: dict[Stmt, int] = {}
    _choose(body, work, found)
    return found if found or work.calls else None


def look(f: FunctionEmitter) -> None:
    """Leave the function if the word is set."""
    word = f.effect(f"load volatile i32, ptr {f.watch}")
    go_on, stop = f.label("calm"), f.label("interrupted")
    f.branch_if(f.effect(f"icmp eq i32 {word}, 0"), go_on, stop, ", !prof !1")
    f.start(stop)
    f.fail(INTERRUPTED, "it was interrupted; what it writes is written in part")
    f.start(go_on)


class _Work:
    """How many stores a statement does; None where nobody knows."""

    def __init__(self) -> None:
        self.known: dict[Any, int | None] = {}
        self.calls = False  # of other functions of ours

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
    """Enter the loops in a statement that look, and say whether it does."""
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
        # Most inner loops of unknown extent are short: those that are pay with one comparison.
        if_long = total is None and nested
        found[s] = -block if if_long else block
        return _IF_LONG if if_long else _SURELY
    inside = max([_choose(part, work, found, True) for part in children(s)], default=_NOT)
    if inside != _SURELY:
        found[s] = _SOME if inside == _IF_LONG else 1
    return _SURELY
