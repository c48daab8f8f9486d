"""A whole module as LLVM's text: functions, outlined parallel bodies, constants, declarations, metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ...ir.dtype import DataType
from ...ir.errors import BuildError
from ...ir.expr import Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import vars_used
from ...ir.stmt import Allocate, For, LetStmt
from . import polls
from .emit import FunctionEmitter, may_trap
from .guards import refuse_overlaps
from .lanes import unmasked
from .memory import fence
from .signature import Signature
from .types import mem_type, reg_type

_RUNTIME = """
@__tw_error_message = weak_odr global ptr null
@__tw_packed_call = weak_odr global ptr null
@__tw_parallel_launch = external global ptr
@__tw_memory = weak_odr global { ptr, ptr } zeroinitializer
define internal i32 @__tw_alone(ptr %body, ptr %env, i64 %begin, i64 %end) nounwind {
  %code = call i32 %body(i64 %begin, i64 %end, ptr %env)
  ret i32 %code
}
declare noalias ptr @aligned_alloc(SIZE, SIZE)
declare void @free(ptr)
define internal noalias ptr @__tw_take(SIZE %size) nounwind {
  %give = load ptr, ptr @__tw_memory
  %alone = icmp eq ptr %give, null
  br i1 %alone, label %system, label %pool
system:
  %a = call ptr @aligned_alloc(SIZE 64, SIZE %size)
  ret ptr %a
pool:
  %p = call ptr %give(SIZE %size)
  ret ptr %p
}
define internal void @__tw_give(ptr %block) nounwind {
  %take = load ptr, ptr getelementptr ({ ptr, ptr }, ptr @__tw_memory, i32 0, i32 1)
  %alone = icmp eq ptr %take, null
  br i1 %alone, label %system, label %pool
system:
  call void @free(ptr %block)
  ret void
pool:
  call void %take(ptr %block)
  ret void
}
define weak_odr ptr @__tw_last_error() {
  %m = load ptr, ptr @__tw_error_message
  ret ptr %m
}
!0 = !{!"branch_weights", i32 1, i32 2000}
!1 = !{!"branch_weights", i32 2000, i32 1}
!2 = !{i32 1}
!3 = !{!"llvm.loop.unroll.disable"}
"""
# The message of an error: each byte 1 of the template is replaced by the next number; long messages are truncated.
_DESCRIBE = """
@__tw_error_text = weak_odr global [1024 x i8] zeroinitializer
define weak_odr void @__tw_describe(ptr %template, ptr %values) nounwind noinline cold {
entry:
  %digits = alloca [24 x i8]
  br label %loop
loop:
  %t = phi ptr [ %template, %entry ], [ %t1, %char ], [ %t1, %copied ]
  %v = phi ptr [ %values, %entry ], [ %v, %char ], [ %v1, %copied ]
  %o = phi i64 [ 0, %entry ], [ %o1, %char ], [ %o2, %copied ]
  %c = load i8, ptr %t
  %end = icmp eq i8 %c, 0
  %full = icmp ugt i64 %o, 990
  %stop = or i1 %end, %full
  br i1 %stop, label %done, label %one
one:
  %t1 = getelementptr i8, ptr %t, i64 1
  %is_number = icmp eq i8 %c, 1
  br i1 %is_number, label %number, label %char
char:
  %p = getelementptr i8, ptr @__tw_error_text, i64 %o
  store i8 %c, ptr %p
  %o1 = add i64 %o, 1
  br label %loop
number:
  %n = load i64, ptr %v
  %v1 = getelementptr i64, ptr %v, i64 1
  %negative = icmp slt i64 %n, 0
  %minus = sub i64 0, %n
  %size = select i1 %negative, i64 %minus, i64 %n
  br label %digit
digit:
  %m = phi i64 [ %size, %number ], [ %m1, %digit ]
  %k = phi i64 [ 24, %number ], [ %k1, %digit ]
  %rest = urem i64 %m, 10
  %m1 = udiv i64 %m, 10
  %k1 = sub i64 %k, 1
  %small = trunc i64 %rest to i8
  %sign = add i8 %small, 48
  %q = getelementptr i8, ptr %digits, i64 %k1
  store i8 %sign, ptr %q
  %more = icmp ne i64 %m1, 0
  br i1 %more, label %digit, label %signed
signed:
  %k2 = sub i64 %k1, 1
  %q2 = getelementptr i8, ptr %digits, i64 %k2
  store i8 45, ptr %q2
  %first = select i1 %negative, i64 %k2, i64 %k1
  br label %copy
copy:
  %i = phi i64 [ %first, %signed ], [ %i1, %copy ]
  %w = phi i64 [ %o, %signed ], [ %o2, %copy ]
  %from = getelementptr i8, ptr %digits, i64 %i
  %d = load i8, ptr %from
  %to = getelementptr i8, ptr @__tw_error_text, i64 %w
  store i8 %d, ptr %to
  %i1 = add i64 %i, 1
  %o2 = add i64 %w, 1
  %left = icmp ult i64 %i1, 24
  br i1 %left, label %copy, label %copied
copied:
  br label %loop
done:
  %last = getelementptr i8, ptr @__tw_error_text, i64 %o
  store i8 0, ptr %last
  store ptr @__tw_error_text, ptr @__tw_error_message
  ret void
}
"""
_NARROW = ("wasm32", "i386", "i686", "arm-", "armv", "thumb", "riscv32")


_FIRST_LOOP = 100


class ModuleEmitter:
    """Collects the text of a module; `text()` returns it."""

    def __init__(
        self,
        triple: str,
        *,
        native_half: bool = True,
        fast_math: bool = False,
        scalable: bool = False,
        truncating_store_bits: int = 0,
    ) -> None:
        self.triple = triple
        # The widest vectors of a CPU that truncates elements while it stores them; 0 if it does not.
        self.truncating_store_bits = truncating_store_bits
        self.scalable = scalable  # whether there are vectors whose length only the hardware knows
        # The type size_t of C.
        self.size_type = "i32" if triple.startswith(_NARROW) else "i64"
        self.native_half = native_half
        self.fast_flags = "fast" if fast_math else "contract"
        self.declared: dict[str, None] = {}
        self.loops: list[str] = []  # metadata of loops with disabled transformations
        self.unmasked: frozenset[Var] = frozenset()  # memory whose vectors need no mask
        self.slack: set[Var] = set()  # memory whose vectors may be loaded beyond its end, without a mask
        self.externs: dict[str, str] = {}
        self.defined: set[str] = set()
        self.globals: list[str] = []
        self.functions: list[str] = []
        self.strings: dict[str, str] = {}
        self.symbols: dict[str, str] = {}  # from names in the module to C symbols
        self.uses_parallel = False
        self.describes = False  # whether an error has numbers in its text
        self.watches = False  # whether it polls for interrupts
        self.imported: dict[str, None] = {}  # LLVM IR that a schedule brings along (pragma import_llvm)

    # -- parts ---------------------------------------------------------------------------------
    def symbol(self, name: str) -> str:
        return self.symbols.get(name, name)

    def kept(self, *, scalar: bool) -> str:
        """The metadata of a loop that LLVM must not unroll, nor vectorize if `scalar`."""
        self.loops.append("!3, !4" if scalar else "!3")
        return f", !llvm.loop !{_FIRST_LOOP + len(self.loops)}"

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i386", "i686"))

    def declare(self, text: str) -> None:
        self.declared[text] = None

    def declare_extern(self, name: str, result: str, args: Sequence[str]) -> None:
        text = f"declare {result} @{name}({', '.join(args)})"
        if self.externs.setdefault(name, text) != text:
            raise BuildError(
                f"the function {name} is called with different types: `{self.externs[name]}` and `{text}`"
            )

    def string(self, value: str) -> str:
        name = self.strings.get(value)
        if name is None:
            name = self.strings[value] = f"@.str{len(self.strings)}"
            data = value.encode() + b"\0"
            self.globals.append(
                f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{_escaped(data)}"'
            )
        return name

    def constant_array(self, data: Any, kind: DataType) -> str:
        import numpy as np

        raw = np.ascontiguousarray(data.numpy() if hasattr(data, "numpy") else data).tobytes()
        name = f"@.const{len(self.globals)}"
        self.globals.append(
            f'{name} = private unnamed_addr constant [{len(raw)} x i8] c"{_escaped(raw)}", align 64'
        )
        return name

    # -- functions -----------------------------------------------------------------------------
    def function(self, func: PrimFunc, signature: Signature) -> None:
        """Define one function under its signature's symbol."""
        if signature.symbol in self.defined:
            raise BuildError(f"two functions are named {signature.symbol!r}")
        self.defined.add(signature.symbol)
        self.unmasked |= unmasked(func.body)
        f = FunctionEmitter(self, noalias=signature.noalias)
        noalias = " noalias" if signature.noalias else ""
        params: list[str] = []
        for p in signature.arguments:
            name = f"%{_clean(p.var.name)}.{len(params)}"
            if p.is_pointer:
                params.append(f"ptr{noalias} noundef align {p.align} {name}")
            else:
                params.append(f"{mem_type(p.var.dtype)} noundef {name}")
                if p.var.dtype.is_bool:
                    f.bind(p.var, f.truth(name, p.var.dtype))
                    continue
            f.bind(p.var, name)
        if signature.ret_type is not None:
            params.append("ptr noundef %ret")
            f.ret_pointer = "%ret"
        refuse_overlaps(f, signature)
        self._watch(f, func)
        f.stmt(func.body)
        f.ret("0")
        self.finish(f, f"define i32 @{signature.symbol}({', '.join(params)}) nounwind", "#0")

    def _watch(self, f: FunctionEmitter, func: PrimFunc) -> None:
        """Let a long-running function poll for interrupts."""
        found = polls.places(func.body) if polls.has_word(self.triple) else None
        if found is not None:
            self.watches = True
            f.watched, f.polls = Var("watch", "handle"), found
            f.bind(f.watched, f.effect("call ptr @__tw_watch()"))

    def outline(self, parent: FunctionEmitter, loop: Any, captured: Sequence[Var]) -> str:
        """Outline the body of a parallel loop as a function over a range of iterations; returns its name."""
        self.uses_parallel = True
        name = f"__tw_body{len(self.functions)}_{len(self.defined)}_{parent.count}"
        while name in self.defined:
            name += "_"
        self.defined.add(name)
        body = FunctionEmitter(self, in_parallel=True, noalias=parent.noalias)
        params, loads, args = ["i64 %begin", "i64 %end"], [], ["i64 %begin", "i64 %end"]
        fields = [reg_type(v.dtype) for v in captured]
        struct_text = "{ " + ", ".join(fields) + " }"
        for i, v in enumerate(captured):
            noalias = " noalias" if v.dtype.is_handle and parent.noalias else ""
            params.append(f"{fields[i]}{noalias} %c{i}")
            body.bind(v, f"%c{i}")
            loads.append(f"  %p{i} = getelementptr inbounds {struct_text}, ptr %env, i32 0, i32 {i}")
            loads.append(f"  %v{i} = load {fields[i]}, ptr %p{i}")
            args.append(f"{fields[i]} %v{i}")
        body.streaming, body.noalias = parent.streaming, parent.noalias
        body.watched, body.polls = parent.watched, parent.polls
        kept, loop = _once_for_all(loop)
        with ExitStack() as held:
            for s in kept:
                if isinstance(s, LetStmt):
                    body.let_value(s)
                else:
                    held.enter_context(body.allocated(s))
            body.loop(loop, "%begin", "%end")
        fence(body)
        body.ret("0")
        # The pointers are arguments of a function of their own, so that they may be marked noalias.
        self.finish(body, f"define internal i32 @{name}_run({', '.join(params)}) noinline nounwind", "#0")
        self.functions.append(
            "\n".join(
                [
                    f"define internal i32 @{name}(i64 %begin, i64 %end, ptr %env) nounwind #0 {{",
                    *loads,
                    f"  %code = call i32 @{name}_run({', '.join(args)})",
                    "  ret i32 %code",
                    "}",
                ]
            )
        )
        return name

    def finish(self, f: FunctionEmitter, head: str, attributes: str) -> None:
        lines = [f"{head} {attributes} {{", "entry:", *f.entry, *f.lines, "}"]
        self.functions.append("\n".join(lines))

    # -- whole ---------------------------------------------------------------------------------
    def text(self, metadata: dict[str, Any], attributes: str) -> str:
        """The module. `attributes` are those of every function (CPU and features)."""
        externs = [t for name, t in self.externs.items() if name not in self.defined]
        parts = [
            f'target triple = "{self.triple}"',
            _RUNTIME.replace("SIZE", self.size_type),
            _DESCRIBE if self.describes else "",
            polls.RUNTIME if self.watches else "",
            metadata_line(metadata),
            "\n".join(self.globals),
            "\n".join(self.declared),
            "\n".join(externs),
            "\n\n".join(sorted(self.functions, key=_defined_name)),
            "\n".join(
                f"!{i} = distinct !{{!{i}, {marks}}}" for i, marks in enumerate(self.loops, _FIRST_LOOP + 1)
            ),
            '!4 = !{!"llvm.loop.vectorize.enable", i1 false}' if "!3, !4" in self.loops else "",
            f"attributes #0 = {{ {attributes} }}",
        ]
        return "\n".join(p for p in parts if p) + "\n"


def _once_for_all(loop: For) -> tuple[list[LetStmt | Allocate], For]:
    """The allocations of dynamic size that all iterations of a thread can share, and the loop without them.

    for i in parallel(64):                            row = allocate(n + 2)         (in each thread)
        row = allocate(n + 2)              ->         for i in its part of 64:
        …                                                 …
    """
    kept: list[LetStmt | Allocate] = []
    inside: list[LetStmt | Allocate] = []
    own = {loop.loop_var}
    at = loop.body
    while isinstance(at, (LetStmt, Allocate)):
        if isinstance(at, LetStmt):
            shared = not vars_used(at.value) & own and not may_trap(at.value)
            own |= set() if shared else {at.var}
        else:
            shared = const_value(at.extents[0]) is None and not any(vars_used(e) & own for e in at.extents)
        (kept if shared else inside).append(at)
        at = at.body
    if not any(isinstance(s, Allocate) for s in kept):
        return [], loop
    for s in reversed(inside):
        at = s.replace(body=at)
    return kept, loop.replace(body=at)


def metadata_line(metadata: dict[str, Any]) -> str:
    """The definition of the description that a library carries; weak, so that several objects can be linked to one."""
    data = json.dumps(metadata, separators=(",", ":")).encode() + b"\0"
    return f'@__tw_metadata = weak constant [{len(data)} x i8] c"{_escaped(data)}"'


def _defined_name(text: str) -> str:
    """The name of a function: the text does not depend on the order of the functions in the module."""
    return text[text.index("@") : text.index("(", text.index("@"))]


def _escaped(data: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)


def _clean(name: str) -> str:
    """A name as LLVM reads it without quotes; one that begins with a digit would be the number of a value."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{made}" if made[:1].isdigit() else made
