"""Reports of kernels on a device about bad data: an index out of bounds, a divisor that is 0.

A kernel cannot end a call. A check that fails in it writes its number and the values of its message to a block of
memory, unless another check has done so before, and the kernel continues with 0 instead of the bad value. The host
reads the block after it has waited for the device anyway, and raises the error then.

    run        launch, launch, launch                   each kernel with checks is given the address of the block
    numpy()    wait, copy, look at the block            OutOfBoundsError: node Gather 'rows': index 7 at position [1] …

A block belongs to an executor, or to a function that was built on its own. It is read by the threads that launched
kernels or read a result, so that the error of one executor is not raised for another one's caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .errors import BAD_DATA, CHECK_CODES

BLOCK = 256  # bytes: the number of the check, then the values of its message, in 64 bits each
MOST_VALUES = BLOCK // 8 - 1

Check = Sequence[str]  # the kind of a check, and its message with {} for each value


class ReportBlock(Protocol):
    """Memory that kernels write to and the host reads."""

    address: int  # on the device
    visible: bool  # whether the host can read it without a copy

    def read(self) -> Sequence[int]:
        """The numbers that completed kernels have written."""

    def clear(self) -> None:
        """Reset it for another report."""


class DeviceBlock:
    """A block in memory of the device, which is copied to be read."""

    visible = False

    def __init__(self, api: Any, index: int) -> None:
        self._api, self._index = api, index
        self.address: int = api.allocate(index, BLOCK)
        self.clear()

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._api.release(self._index, self.address)

    def read(self) -> Sequence[int]:
        import numpy as np

        held = np.zeros(BLOCK // 8, np.int64)
        self._api.download(self._index, self.address, held.ctypes.data, BLOCK)
        return [int(n) for n in held]

    def clear(self) -> None:
        import numpy as np

        zeros = np.zeros(BLOCK // 8, np.int64)
        self._api.upload(self._index, self.address, zeros.ctypes.data, BLOCK)


class _Thread(threading.local):
    """The state of one thread: the executor of its launches, and the pending reports with their streams."""

    def __init__(self) -> None:
        self.current: Report | None = None
        self.pending: dict[tuple[Report, int], None] = {}


_thread = _Thread()


class Report:
    """The block of one executor or function on a device, and the messages of the checks that may write to it."""

    def __init__(self, api: Any, index: int) -> None:
        self._api, self._index = api, index
        self._block: ReportBlock = api.report_block(index)
        self._checks: list[Check] = []
        self._bases: dict[int, tuple[int, Sequence[Check]]] = {}
        self.address = self._block.address

    def base(self, checks: Sequence[Check]) -> int:
        """The base of the numbers of a kernel's checks, which start from 1."""
        found = self._bases.get(id(checks))
        if found is None:
            found = self._bases[id(checks)] = (len(self._checks), checks)
            self._checks += checks
        return found[0]

    def expect(self) -> None:
        """Check it when this thread next waits for its stream."""
        recording = self._api.recording
        if recording is not None:
            recording.append(self)  # expected by the thread that runs the graph
        else:
            _thread.pending[self, self._api.stream(self._index)] = None

    def check_visible(self) -> None:
        """Raise the reported error, if it is visible without waiting."""
        if self._block.visible:
            self.check()

    def check(self) -> None:
        """Raise the reported error."""
        number, *values = self._block.read()
        if not number:
            return
        self._block.clear()
        kind, message = self._checks[number - 1]
        first, *parts = message.split("{}")
        raise BAD_DATA[CHECK_CODES[kind]](first + "".join(f"{v}{p}" for v, p in zip(values, parts)))

    def is_on(self, api: Any, index: int) -> bool:
        return self._api is api and self._index == index


def check_reports(api: Any, index: int) -> None:
    """Raise the errors of the kernels that this thread launched on its stream of a device, after waiting for it."""
    if not _thread.pending:
        return
    stream = api.stream(index)
    found = [key for key in _thread.pending if key[1] == stream and key[0].is_on(api, index)]
    for key in found:
        del _thread.pending[key]
    for report, _ in found:
        report.check()


def within(report: Report, work: Callable[[], Any]) -> Callable[[], None]:
    """Run with an executor's block as the report of its kernels."""

    def run() -> None:
        before, _thread.current = _thread.current, report
        try:
            work()
        finally:
            _thread.current = before

    return run


def reporting(
    launch: Callable[..., None], checks: Sequence[Check], own: Callable[[], Report]
) -> Callable[..., None]:
    """The launch of a kernel with checks: it gets a block and the base of its check numbers."""

    def launch_with_report(
        gx: int, gy: int, gz: int, bx: int, by: int, bz: int, dynamic: int, args: tuple[Any, ...]
    ) -> None:
        report = _thread.current or own()
        report.expect()
        launch(gx, gy, gz, bx, by, bz, dynamic, (*args, report.address, report.base(checks)))

    return launch_with_report
