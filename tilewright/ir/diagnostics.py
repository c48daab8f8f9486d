"""Errors at places of a source, for a program that wants to show them itself.

    override_renderer(lambda ctx: print([(d.span.line, d.message) for d in ctx.diagnostics]))

The renderer is called with each error of a script before the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from .errors import DiagnosticError
from .span import Span

__all__ = [
    "Diagnostic",
    "DiagnosticContext",
    "DiagnosticLevel",
    "DiagnosticRenderer",
    "get_renderer",
    "override_renderer",
    "report",
]


class DiagnosticLevel(IntEnum):
    """How grave a message is."""

    BUG = 10
    ERROR = 20
    WARNING = 30
    NOTE = 40
    HELP = 50


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message and its place."""

    level: DiagnosticLevel
    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class DiagnosticRenderer:
    """What shows messages to a person, or hands them to a program."""

    render_func: Callable[[DiagnosticContext], None]

    def render(self, ctx: DiagnosticContext) -> None:
        self.render_func(ctx)


def _print(ctx: DiagnosticContext) -> None:
    for d in ctx.diagnostics:
        print(f"{d.span}: {d.message}")


_DEFAULT = DiagnosticRenderer(_print)
_chosen: list[DiagnosticRenderer] = []


def override_renderer(render_func: Callable[[DiagnosticContext], None] | None) -> None:
    """Show messages by a function of your own; None goes back to none but the error itself."""
    _chosen.clear()
    if render_func is not None:
        _chosen.append(DiagnosticRenderer(render_func))


def get_renderer() -> DiagnosticRenderer:
    """The renderer that was chosen, or one that prints."""
    return _chosen[-1] if _chosen else _DEFAULT


@dataclass(slots=True)
class DiagnosticContext:
    """The messages about a program so far."""

    module: Any = None
    renderer: DiagnosticRenderer = field(default_factory=get_renderer)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def emit(self, diagnostic: Diagnostic) -> None:
        """Add a message."""
        self.diagnostics.append(diagnostic)

    def render(self) -> None:
        """Show the messages; errors among them are raised then."""
        self.renderer.render(self)
        errors = [d for d in self.diagnostics if d.level <= DiagnosticLevel.ERROR]
        if errors:
            raise DiagnosticError(f"{errors[0].span}: {errors[0].message}")


def report(span: Span, message: str) -> None:
    """Tell the renderer that was chosen of an error which is about to be raised."""
    if _chosen:
        context = DiagnosticContext(renderer=_chosen[-1])
        context.emit(Diagnostic(DiagnosticLevel.ERROR, span, message))
        context.renderer.render(context)
