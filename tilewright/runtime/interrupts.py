"""Ctrl-C while compiled code runs: Python's handler waits until the code returns, so the code must poll a flag.

    SIGINT ──▶ __tw_signal, in the first library that has it: sets the word, then calls Python's own handler
    loops of the main thread see the word and return  ──▶  Python raises KeyboardInterrupt, as it does anywhere else

This holds only for Python's default handler (`signal.default_int_handler`): a program that installs another handler
gets the signal itself, and decides when work ends.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from typing import Any

from ..forks import at_start_of_child

_INTERRUPT, _CHAINED, _HANDLER = "__tw_interrupt", "__tw_chained", "__tw_signal"


class _Process(ctypes.Structure):
    """The flags that libraries poll: the main thread, and whether an interrupt is pending."""

    _fields_ = [("main", ctypes.c_void_p), ("word", ctypes.c_int32)]


_process = _Process(threading.main_thread().ident, 0)
_handlers: list[Any] = []  # the library whose handler is installed; never unloaded
_DEFAULT_OR_NONE = (None, 0, 1)  # SIG_DFL, SIG_IGN


@at_start_of_child
def _forked() -> None:
    """The thread that forked is the main thread of the child."""
    _process.main = threading.get_ident()


def join(library: Any) -> None:
    """Connect a library to the interrupt flag, and install the signal handler."""
    slot = library.address(_INTERRUPT)
    if not slot:
        return
    ctypes.c_void_p.from_address(slot).value = ctypes.addressof(_process)
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _install(_handlers[0] if _handlers else library)


def _install(library: Any) -> None:
    """Install the library's handler in front of Python's, unless it is installed."""
    ours, chain = library.address(_HANDLER), library.address(_CHAINED)
    if not ours or not chain or _handler() == ours:
        return
    held = (ctypes.c_void_p * 2).from_address(chain)
    held[0] = ctypes.addressof(_process) + _Process.word.offset
    before = _handler()
    if before in _DEFAULT_OR_NONE:
        return
    held[1] = before
    install = ctypes.CDLL(None).signal
    install.restype, install.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    install(signal.SIGINT, ours)
    signal.siginterrupt(signal.SIGINT, True)  # as in Python: system calls are interrupted
    if not _handlers:
        _handlers.append(library)


def _handler() -> int | None:
    """The address of the current SIGINT handler, the first field of C's struct sigaction."""
    now = (ctypes.c_void_p * 64)()
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, now)
    return now[0]
