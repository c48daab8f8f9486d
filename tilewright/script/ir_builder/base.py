"""The builder: a stack of frames, each of which collects statements until it is closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from ...ir.buffer import Buffer
from ...ir.expr import Var
from ...ir.stmt import Stmt
from ...tir.script.parser import BlockFrame, StmtParser, sequence
from ...tir.script.source import Source

_builders: list[IRBuilder] = []


class IRBuilderFrame:
    """`with frame as value:` opens a frame; what is built inside is its body.

    `enter` gives the value, and `leave` turns the statements of the body into what the frame stands for, or None.
    """

    def __init__(self, enter: Callable[[], Any], leave: Callable[[Stmt], Any]) -> None:
        self._enter, self._leave = enter, leave
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call a function when the frame is closed."""
        self._callbacks.append(callback)

    def __enter__(self) -> Any:
        IRBuilder.current().open()
        return self._enter()

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        builder = IRBuilder.current()
        body = builder.close()
        if kind is not None:
            return
        for callback in reversed(self._callbacks):
            callback()
        made = self._leave(body)
        if made is not None:
            builder.add(made)


def _new_function() -> StmtParser:
    """What collects the parts of a function: its root block is open."""
    made = StmtParser(Source("<builder>", [], None), {})
    made.frames.append(BlockFrame("root"))
    return made


class IRBuilder:
    """Builds a statement, a function or a module by frames.

        with IRBuilder() as ib:
            with T.prim_func():
                T.func_name("double")
                A = T.arg("A", T.Buffer((8,), "float32"))
                with T.serial(8) as i:
                    T.buffer_store(A, A[i] * 2, [i])
        ib.get().show()

    The frames are made of the same parts as the statements of a script.
    """

    def __init__(self) -> None:
        self._levels: list[list[Any]] = [[]]
        self._functions = [_new_function()]
        self._result: Any = None

    def __enter__(self) -> IRBuilder:
        _builders.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        _builders.pop()
        if kind is None:
            (made,) = self._levels
            whole = len(made) == 1 and not isinstance(made[0], Stmt)
            self._result = made[0] if whole else sequence(made)

    @staticmethod
    def current() -> IRBuilder:
        """The innermost builder that is open."""
        if not _builders:
            raise ValueError("no IRBuilder is open here: write `with IRBuilder() as ib:` around it")
        return _builders[-1]

    @staticmethod
    def is_in_scope() -> bool:
        """Whether a builder is open."""
        return bool(_builders)

    def get(self) -> Any:
        """What was built."""
        if self._result is None:
            raise ValueError("IRBuilder.get: the builder is still open, or an error ended it")
        return self._result

    @staticmethod
    def name(s: str, v: Any) -> Any:
        """Name a variable or a buffer that the builder has just made."""
        if isinstance(v, (Var, Buffer)):
            object.__setattr__(v, "name", s)  # nobody else has seen it yet
        return v

    @staticmethod
    def name_many(s: Sequence[str], vs: Sequence[Any]) -> list[Any]:
        """Name several of them."""
        return [IRBuilder.name(n, v) for n, v in zip(s, vs, strict=True)]

    # -- for the frames ----------------------------------------------------------------------------
    @property
    def parser(self) -> StmtParser:
        """The function that is being built: its parameters, blocks and loops."""
        return self._functions[-1]

    def open(self) -> None:
        self._levels.append([])

    def close(self) -> Stmt:
        return sequence(self._levels.pop())

    def add(self, made: Any) -> None:
        """Add a statement, or a function or module, to the frame that is open."""
        self._levels[-1].append(made)

    def open_function(self) -> StmtParser:
        self._functions.append(_new_function())
        return self.parser

    def close_function(self) -> StmtParser:
        return self._functions.pop()
