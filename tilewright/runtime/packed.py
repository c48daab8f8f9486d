"""Calls from compiled code into Python: one C callback that finds global functions by name.

    compiled code ──cb("my.add", args, codes, n, ret, ret_code)──▶ registry["my.add"](*args)

An exception cannot cross C. It is stored here, the callback returns a code, the compiled function returns
the code, and the launcher raises the same exception again.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from .errors import TVMError
from .ndarray import of_tensor
from .registry import get_global_func

RAISED = 2
NOT_FOUND = 3

INT, UINT, FLOAT, HANDLE, NULL, TENSOR, TEXT = 0, 1, 2, 3, 4, 7, 11


class TWValue(ctypes.Union):
    """One argument or result of a packed call."""

    _fields_ = [
        ("as_int", ctypes.c_int64),
        ("as_uint", ctypes.c_uint64),
        ("as_float", ctypes.c_double),
        ("as_address", ctypes.c_void_p),
        ("as_text", ctypes.c_char_p),
    ]


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.POINTER(TWValue),
    ctypes.POINTER(ctypes.c_int32),
    ctypes.c_int32,
    ctypes.POINTER(TWValue),
    ctypes.POINTER(ctypes.c_int32),
)

# Pending exceptions, by thread. A parallel loop may raise on a worker of the pool, which Python did not start: the
# thread that launched the loop then has none of its own and takes the last one of the workers.
_pending: dict[int, BaseException] = {}
_texts = threading.local()


def take_exception() -> BaseException | None:
    """The pending exception of the last packed call, if any."""
    found = _pending.pop(threading.get_ident(), None)
    if found is None:
        started = {
            thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)
        }
        for thread in [ident for ident in list(_pending) if ident not in started]:
            found = _pending.pop(thread, found)
    return found


def _unpack(value: TWValue, code: int) -> Any:
    if code == INT:
        return value.as_int
    if code == FLOAT:
        return value.as_float
    if code == TENSOR:
        return of_tensor(value.as_address)
    if code == TEXT:
        return value.as_text.decode()
    if code == NULL:
        return None
    if code == UINT:
        return value.as_uint
    if code == HANDLE:
        return ctypes.c_void_p(value.as_address)
    raise TVMError(f"compiled code passed an argument of unknown kind {code}")


def _pack(result: Any, name: str, out: TWValue) -> int:
    """Store a result; returns its type code."""
    if result is None:
        out.as_int = 0
        return NULL
    if isinstance(result, str):
        _texts.last = result.encode()  # the caller may read it until this thread's next packed call
        out.as_text = _texts.last
        return TEXT
    if isinstance(result, float):
        out.as_float = result
        return FLOAT
    if hasattr(result, "__index__"):
        value = result.__index__()
        if not -(2**63) <= value < 2**64:
            raise OverflowError(f"global function {name!r} returned {value}, which does not fit 64 bits")
        out.as_uint = value % 2**64
        return INT
    if isinstance(result, ctypes.c_void_p):
        out.as_address = result.value
        return HANDLE
    if hasattr(result, "dtype") and hasattr(result, "item") and getattr(result, "size", 0) == 1:
        return _pack(result.item(), name, out)
    raise TypeError(
        f"global function {name!r} returned {type(result).__name__}; "
        "compiled code takes None, a bool, an int, a float or a str"
    )


def _call(name_: bytes, args: Any, codes: Any, count: int, ret: Any, ret_code: Any) -> int:
    try:
        name = name_.decode()
        function = get_global_func(name, allow_missing=True)
        if function is None:
            _pending[threading.get_ident()] = TVMError(
                f"compiled code calls the global function {name!r}, which is not registered; "
                f"register it with @register_func({name!r}) before the call"
            )
            return NOT_FOUND
        result = function(*[_unpack(args[i], codes[i]) for i in range(count)])
        code = _pack(result, name, ret[0] if ret else TWValue())
        if ret_code:
            ret_code[0] = code
        return 0
    except BaseException as error:  # also KeyboardInterrupt: no exception may be lost in C
        _pending[threading.get_ident()] = error
        return RAISED


_callback = _CALLBACK(_call)
# libraries keep the address until the process ends, so the thunk must never be freed
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))
CALLBACK_ADDRESS: int = ctypes.cast(_callback, ctypes.c_void_p).value or 0
