"""Translated programs: translated once per function, run on arguments, with errors mapped to their statement."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arith.scalable import has_vscale, with_vscale
from ...ir.deep import deep_programs
from ...ir.expr import PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.stmt import Evaluate
from .arguments import Arguments
from .expressions import Options
from .report import InterpreterError
from .running import HELPERS, Left, Run
from .source import render
from .statements import StmtTranslator

_numbers = itertools.count()
_programs: weakref.WeakKeyDictionary[PrimFunc, dict[Options, Program]] = weakref.WeakKeyDictionary()


class Program:
    """A function as Python code. `source` is its text."""

    def __init__(self, func: PrimFunc, options: Options) -> None:
        name = str(func.attrs.get("global_symbol", "main"))
        try:
            with deep_programs(), np.errstate(all="ignore"):
                if has_vscale(func.body):
                    func = func.replace(body=with_vscale(func.body, options.vscale))
                t = StmtTranslator(func, options)
                frame = t.translate()
        except InterpreterError as error:
            error.function = error.function or name
            raise
        lines: list[str] = []
        self.records: list[Any] = []
        render(frame, 0, lines, self.records)
        self.source = "\n".join(lines)
        self.filename = f"<interpret {name} {next(_numbers)}>"
        scope = {**HELPERS, **t.pool}
        exec(compile(self.source, self.filename, "exec"), scope)
        self.run = scope["run"]
        self.name, self.inputs, self.sites = name, t.inputs, t.sites
        self.stored = t.facts.stored_in(func.body)
        self.facts = t.facts

    def __call__(self, func: PrimFunc, args: Sequence[Any], options: Options, module: Any) -> Any:
        given = Arguments(func, self.name)
        given.bind(args, self.facts.unit, lambda v: self.facts.root(v) in self.stored, options.outputs)
        rt = Run(module, options, self.sites)
        with np.errstate(all="ignore"):
            try:
                result = self.run(rt, *(self._input(given, v) for v in self.inputs))
            except Left as left:
                result = left.value
            except InterpreterError as error:
                # errors that follow from an uninitialized value are not the cause
                cause = error if error.kind == "race" else rt.clock.pending or error
                raise self._placed(cause, error) from None
            except (ZeroDivisionError, IndexError) as error:
                held = rt.clock.pending or _as_report(error)
                raise self._placed(held, error) from None
        given.finish()
        return result

    def _input(self, given: Arguments, v: Var) -> Any:
        if v not in given.values:
            raise ValueError(f"{self.name}: no argument determines {v.name}")
        return given.values[v]

    def _placed(self, error: InterpreterError, cause: BaseException | None = None) -> InterpreterError:
        """The error with the statement that was running and the values of the variables around it."""
        if error.function is not None:
            return error  # a called function has added it already
        line, values = 0, {}
        tb = (cause or error).__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == self.filename:
                line = tb.tb_lineno
                values.update(tb.tb_frame.f_locals)
            tb = tb.tb_next
        record = self.records[line - 1] if line else None
        if record is not None:
            statement, visible = record
            if error.notes:
                error.function = self.name
                return error  # it is about two statements, or about an earlier one
            error.statement = statement
            shown: list[tuple[str, Any]] = []
            while visible is not None:
                visible, name, python = visible
                if python in values:
                    shown.append((name, values[python]))
            error.values = dict(reversed(shown))
        error.function = self.name
        return error


def _as_report(error: Exception) -> InterpreterError:
    if isinstance(error, ZeroDivisionError):
        return InterpreterError("division", "division by zero")
    return InterpreterError("out-of-bounds", f"out of bounds: {error}")


def program_of(func: PrimFunc, options: Options) -> Program:
    """The function's program, translated at its first use."""
    held = _programs.setdefault(func, {})
    if options not in held:
        held[options] = Program(func, options)
    return held[options]


def run_function(func: PrimFunc, args: Sequence[Any], options: Options, module: Any) -> Any:
    """Run a function on arguments; returns its result."""
    return program_of(func, options)(func, args, options, module)


def evaluate(e: PrimExpr, values: Mapping[Var, Any]) -> Any:
    """The value of an expression without memory, its variables given."""
    t = StmtTranslator(PrimFunc([], Evaluate(e)), Options())
    names = []
    for v in values:
        names.append(t.fresh(v.name))
        t.bind(v, t.full(v.dtype, names[-1]))
    code = t.value(e)
    t.frame.params = names
    t.frame.emit(f"return {code.text}", None)
    lines: list[str] = []
    render(t.frame, 0, lines, [])
    scope = {**HELPERS, **t.pool}
    exec("\n".join(lines), scope)
    with np.errstate(all="ignore"):
        return scope["run"](*values.values())
