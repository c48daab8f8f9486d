"""Decorators that turn a function into a pass over graph functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...ir.transform import FunctionPass, Pass, PassInfo, function_pass_for, register_pass, snake
from ..expr import Function

function_pass: Final = function_pass_for(Function)
function_pass.__doc__ = (
    "Make a pass of a function `(func, mod, ctx) -> func`, or of a class with `transform_function`."
)


def as_function_pass(
    function: Callable[..., Function], *, name: str, opt_level: int = 0, required: Sequence[str] = ()
) -> Callable[..., Pass]:
    """The public factory of a pass that is a plain function `Function -> Function`.

    Its arguments go to the function after the first:

        FastMath = as_function_pass(fast_math, name="FastMath", opt_level=4, required=("InferType",))
    """
    info = PassInfo(opt_level, name, required)

    def factory(*args: Any, **kwargs: Any) -> Pass:
        made = FunctionPass(lambda func, mod, ctx: function(func, *args, **kwargs), info, Function)
        made.dump_name = snake(name)
        return made

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__, factory.__module__ = function.__doc__, function.__module__
    register_pass(name, factory)
    return factory
