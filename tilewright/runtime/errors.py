"""The base error of the package. It lives here because a deployed runtime needs nothing else."""

from __future__ import annotations

from typing import Final


class TVMError(RuntimeError):
    """The base of every error of tilewright."""


class UnsupportedError(TVMError, NotImplementedError):
    """A name or an argument of the classic API that tilewright does not have."""


class ArgumentTypeError(TVMError, TypeError):
    """An argument of a call whose type does not fit the function."""


class ArgumentValueError(TVMError, ValueError):
    """An argument of a call whose shape, data type, layout or device does not fit the function."""


class OutOfBoundsError(TVMError, IndexError):
    """An index in the data of a model that is out of bounds of its tensor."""


class DivisionByZeroError(TVMError, ZeroDivisionError):
    """An integer division by zero in the data of a model."""


# Return codes of functions whose data failed a check, by the kind of the check, and their errors.
CHECK_CODES: Final = {"index": 5, "value": 5, "divisor": 6}
BAD_DATA: Final[dict[int, type[TVMError]]] = {5: OutOfBoundsError, 6: DivisionByZeroError}


class LoadError(TVMError, ValueError):
    """A file that cannot be loaded: not one of ours, damaged, or made for another machine."""
