"""Programs for accelerators as C: the host's loops, and a call of the driver for each command and token.

    for (int32_t i = 0; i < 4; ++i) {
      dsp_dma_in_spad_float32_spad_dram_i7(0, A + i * 1024, 1, 256, 256, 0, 0, 0, 0);
      dsp_push(1, 2);
      dsp_pop(1, 2);
      dsp_loop3(256, 1, 1, 1);
      dsp_vector_add_spad3(256, 0, 0);
      …

A program is three files: the functions, a header that declares the driver, and a table: a driver whose functions call
pointers, which is the C interface of a simulator. A board has a driver of its own in the table's place.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..codegen.source import Program
from ..codegen.source.c import C
from ..ir.errors import BuildError
from ..ir.expr import FloatImm, PrimExpr, StringImm, Var, const
from ..ir.function import PrimFunc
from ..ir.functor import Mutator
from ..ir.module import GlobalVar, IRModule
from ..ir.ops import add, call, cast, floordiv, mul
from ..ir.stmt import Allocate, AttrStmt, DeclBuffer, Evaluate, Stmt, seq
from ..ir.transform import run_passes
from ..runtime import link
from ..runtime.accelerator import Address, Command
from ..target.accelerator import DRAM, Accelerator
from ..tir import transform as T
from ..tir.analysis.commands import Token, engine_of, token_of
from ._accelerator import Form, Issued, Place, Pointer, arguments_by_pointer, form_of, with_tokens

_ARGUMENT: Final = 40  # bits of an offset in an array, where addresses say which array they are in
_TYPES: Final[Mapping[str, tuple[str, Any]]] = {
    "dram": ("int64_t", ctypes.c_int64),
    "f": ("double", ctypes.c_double),
}
_INTEGER: Final = ("int32_t", ctypes.c_int32)


class Call(NamedTuple):
    """A function of the driver: an instruction of an engine for operands of certain kinds.

    Text is a part of the function's name. A kind is the name of a memory, "dram", "i" for an integer or "f" for a
    floating-point number.
    """

    engine: int
    instruction: str
    operands: tuple[str | None, ...]  # text; None for a parameter
    kinds: tuple[str, ...]  # of the parameters

    def name(self, chip: Accelerator) -> str:
        """The name without the chip's: engine, instruction, text and kinds; `spad3` are three addresses in a row."""
        engine = chip.engine(self.engine).name
        words = [engine] if engine == self.instruction else [engine, self.instruction]
        words += [x for x in self.operands if x is not None]
        for kind, same in groupby(self.kinds):
            count = len(list(same))
            words.append(kind if count == 1 else f"{kind}{count}")
        return re.sub(r"\W", "_", "_".join(words))


@dataclass
class CProgram:
    """The functions of a module for a chip as C, and the driver that they call."""

    chip: Accelerator
    source: str
    calls: dict[str, Call]
    loops: list[int]  # numbers of addresses that loops move
    arguments: dict[str, int] = field(default_factory=dict)  # of each function

    # -- text ---------------------------------------------------------------------------------
    def _driver(self) -> list[tuple[str, list[str], list[Any]]]:
        """The driver's functions: names, parameters, and their types for ctypes."""
        token = ["int32_t source", "int32_t target"]
        made: list[tuple[str, list[str], list[Any]]] = [
            (name, token, [ctypes.c_int32] * 2) for name in ("push", "pop")
        ]
        for n in self.loops:
            strides = [f"int32_t stride{i}" for i in range(n)]
            made.append((f"loop{n}", ["int32_t extent", *strides], [ctypes.c_int32] * (n + 1)))
        for name, c in self.calls.items():
            types = [_TYPES.get(k, _INTEGER) for k in c.kinds]
            made.append((name, [f"{t} {k}_{i}" for i, (k, (t, _)) in enumerate(zip(c.kinds, types, strict=True))],
                         [t for _, t in types]))  # fmt: skip
        return made

    @property
    def header(self) -> str:
        """The declarations of the driver's functions."""
        name = self.chip.name
        engines = "\n".join(f" *   {e.number}  {e.name}" for e in self.chip.engines)
        lines = [f"void {name}_{f}({', '.join(params)});" for f, params, _ in self._driver()]
        guard = f"{name.upper()}_DRIVER_H"
        return (
            f"/* The driver of {name}. Its engines:\n{engines}\n"
            " * push(source, target): the last command of engine `source` sends a token to `target` when it is done.\n"
            " * pop(source, target): the next command of engine `target` waits for a token from engine `source`.\n"
            " * loopN(extent, strides): the next command repeats, and N addresses move by strides; outer loops first.\n"
            " * Names of commands: engine, instruction, text operands, kinds of parameters. A kind is the memory of\n"
            " * an address, dram for one in DRAM in bytes, i for an integer, f for a floating-point number. */\n"
            f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n" + "\n".join(lines) + "\n\n#endif\n"
        )

    @property
    def table(self) -> str:
        """A driver that calls function pointers, in the order of the header."""
        name = self.chip.name
        lines = [
            f'#include "{name}_driver.h"',
            "",
            "static void (*const *tw_table)(void);",
            f"void {name}_attach(void (*const *table)(void)) {{ tw_table = table; }}",
        ]
        for number, (f, params, _) in enumerate(self._driver()):
            types = ", ".join(p.split()[0] for p in params)
            given = ", ".join(p.split()[1] for p in params)
            lines.append(
                f"void {name}_{f}({', '.join(params)}) {{ ((void (*)({types}))tw_table[{number}])({given}); }}"
            )
        return "\n".join([*lines, ""])

    def files(self) -> dict[str, str]:
        """The three files by their names."""
        name = self.chip.name
        return {
            f"{name}_program.c": self.source,
            f"{name}_driver.h": self.header,
            f"{name}_table.c": self.table,
        }

    # -- the C interface of the simulator -----------------------------------------------------
    def commands(self, name: str, encode: Callable[[Issued], tuple[str, dict[str, Any]]]) -> list[Command]:
        """The commands that a function issues when it is compiled and run with a driver that collects them."""
        if name not in self.arguments:
            raise BuildError(f"the program has no function {name!r}; it has {', '.join(self.arguments)}")
        events: list[Issued | Token] = []
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            for file, text in self.files().items():
                Path(folder, file).write_text(text, encoding="utf-8")
            sources = [str(Path(folder, f)) for f in self.files() if f.endswith(".c")]
            made = str(Path(folder, f"{self.chip.name}.so"))
            link.run_cc(["-O1", "-shared", "-fPIC", *sources, "-lm"], made)
            library = ctypes.CDLL(made)
            functions = self._collectors(events)
            table = (ctypes.c_void_p * len(functions))(
                *(ctypes.cast(f, ctypes.c_void_p).value for f in functions)
            )
            library[f"{self.chip.name}_attach"](table)
            given = [ctypes.c_int64(i << _ARGUMENT) for i in range(self.arguments[name])]
            library[f"run_{name}"](*given)
        return with_tokens(events, encode)

    def _collectors(self, events: list[Issued | Token]) -> list[Any]:
        """The functions of a driver that notes what it is asked to do."""
        loops: list[tuple[int, ...]] = []

        def collector(c: Call) -> Callable[..., None]:
            def collect(*values: Any) -> None:
                events.append(_issued(c, values, loops, self.chip))
                loops.clear()

            return collect

        bodies: list[Callable[..., None]] = [
            lambda source, target: events.append(Token(True, source, target)),
            lambda source, target: events.append(Token(False, source, target)),
            *(lambda *values: loops.append(values) for _ in self.loops),
            *(collector(c) for c in self.calls.values()),
        ]
        return [
            ctypes.CFUNCTYPE(None, *types)(body)
            for (_, _, types), body in zip(self._driver(), bodies, strict=True)
        ]


def _issued(c: Call, values: Sequence[Any], loops: list[tuple[int, ...]], chip: Accelerator) -> Issued:
    """The command of a call of the driver."""
    operands: list[Any] = []
    given = iter(zip(c.kinds, values, strict=True))
    addresses = 0
    scopes = {s.memory: s.name for s in chip.scopes}
    for text in c.operands:
        if text is not None:
            operands.append(text)
            continue
        kind, value = next(given)
        if kind in ("i", "f"):
            operands.append(value)
            continue
        strides = tuple(loop[1 + addresses] for loop in loops)
        addresses += 1
        at = Address(value >> _ARGUMENT, value & (1 << _ARGUMENT) - 1) if kind == "dram" else value
        operands.append(Place(scopes.get(kind, DRAM), at, strides))
    return Issued(c.engine, c.instruction, tuple(operands), tuple(loop[0] for loop in loops), (), ())


# ---------------------------------------------------------------------------- from lowered functions to C
def c_program(mod: IRModule, chip: Accelerator) -> CProgram:
    """The lowered functions of a module as C."""
    made = CProgram(chip, "", {}, [])
    functions = {}
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            name = str(func.attrs.get("global_symbol", gv.name_hint))
            functions[GlobalVar(name)] = _Calls(func, made).function()
            made.arguments[name] = len(func.params)
    ready = run_passes([T.Simplify(), T.LowerIntrin(library=True)], IRModule(functions))
    program = Program(C())
    for gv, func in ready.functions.items():
        assert isinstance(func, PrimFunc)
        program.add(func, f"run_{gv.name_hint}")
    made.loops.sort()
    made.source = f'#include "{chip.name}_driver.h"\n{program.text()}'
    return made


class _Calls(Mutator):
    """Replaces commands and tokens by calls of the driver; memories of the chip need no allocation."""

    def __init__(self, func: PrimFunc, program: CProgram) -> None:
        self.func, self.program, self.chip = func, program, program.chip
        self.arguments = arguments_by_pointer(func)
        self.parameters = [Var(func.buffer_map[p].name, "int64") for p in func.params]

    def function(self) -> PrimFunc:
        return PrimFunc(self.parameters, self.visit(self.func.body))

    def visit_Allocate(self, n: Allocate) -> Stmt:
        return self.visit(n.body)  # type: ignore[no-any-return]

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        return self.visit(n.body)  # type: ignore[no-any-return]

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if engine_of(n) is None:
            return self.visit(n.body)  # type: ignore[no-any-return]
        return self.command(form_of(n, self.chip, self.arguments))

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        token = token_of(n)
        if token is None:
            return n
        return self.call("push" if token.pushes else "pop", const(token.source), const(token.target))

    def call(self, name: str, *args: PrimExpr) -> Stmt:
        return Evaluate(call("int32", "tir.call_extern", StringImm(f"{self.chip.name}_{name}"), *args))

    def command(self, form: Form) -> Stmt:
        pointers = [x for x in form.operands if isinstance(x, Pointer)]
        steps = [
            self.call(f"loop{len(pointers)}", x.extent, *(const(p.strides[i]) for p in pointers))
            for i, x in enumerate(form.loops)
        ]
        if steps and len(pointers) not in self.program.loops:
            self.program.loops.append(len(pointers))
        texts, kinds, values = list[str | None](), list[str](), list[PrimExpr]()
        for x in form.operands:
            texts.append(x if isinstance(x, str) else None)
            if not isinstance(x, str):
                kind, value = self.parameter(x)
                kinds.append(kind)
                values.append(value)
        made = Call(form.engine, form.name, tuple(texts), tuple(kinds))
        name = made.name(self.chip)
        if self.program.calls.setdefault(name, made) != made:
            raise BuildError(
                f"{self.chip.name}: two instructions have the name {name} in C: {made} and {self.program.calls[name]}; "
                "rename an engine, an instruction or a memory of the chip"
            )
        return seq(*steps, self.call(name, *values))

    def parameter(self, x: PrimExpr | Pointer) -> tuple[str, PrimExpr]:
        """The kind of a parameter and its value."""
        if isinstance(x, FloatImm):
            return "f", const(x.value, "float64")
        if not isinstance(x, Pointer):
            return "i", x
        if x.scope is None:
            return "dram", add(self.parameters[x.argument], mul(cast("int64", x.at), const(x.unit, "int64")))
        return x.scope.memory, floordiv(x.at, const(x.unit, x.at.dtype))
