"""The error numbers of candidates in the two classic tuning APIs."""

from __future__ import annotations

from enum import IntEnum

from .measurer import Status


class MeasureErrorNo(IntEnum):
    """The outcome of building and running a candidate."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1  # the template refused it, or a primitive did
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4  # it failed or crashed while it ran
    WRONG_ANSWER = 5  # its results differ from those of the program as it is written
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


NUMBERS = {
    Status.OK: MeasureErrorNo.NO_ERROR,
    Status.REFUSED: MeasureErrorNo.INSTANTIATION_ERROR,
    Status.BUILD_ERROR: MeasureErrorNo.COMPILE_HOST,
    Status.BUILD_CRASH: MeasureErrorNo.COMPILE_HOST,
    Status.BUILD_MEMORY: MeasureErrorNo.COMPILE_HOST,
    Status.BUILD_TIMEOUT: MeasureErrorNo.BUILD_TIMEOUT,
    Status.RUN_ERROR: MeasureErrorNo.RUNTIME_DEVICE,
    Status.CRASH: MeasureErrorNo.RUNTIME_DEVICE,
    Status.MEMORY: MeasureErrorNo.RUNTIME_DEVICE,
    Status.TIMEOUT: MeasureErrorNo.RUN_TIMEOUT,
    Status.WRONG: MeasureErrorNo.WRONG_ANSWER,
}
# Several statuses have the same number: the inverse gives the most general of them.
STATUSES = {
    MeasureErrorNo.NO_ERROR: Status.OK,
    MeasureErrorNo.INSTANTIATION_ERROR: Status.REFUSED,
    MeasureErrorNo.COMPILE_HOST: Status.BUILD_ERROR,
    MeasureErrorNo.COMPILE_DEVICE: Status.BUILD_ERROR,
    MeasureErrorNo.RUNTIME_DEVICE: Status.RUN_ERROR,
    MeasureErrorNo.WRONG_ANSWER: Status.WRONG,
    MeasureErrorNo.BUILD_TIMEOUT: Status.BUILD_TIMEOUT,
    MeasureErrorNo.RUN_TIMEOUT: Status.TIMEOUT,
    MeasureErrorNo.UNKNOWN_ERROR: Status.RUN_ERROR,
}
