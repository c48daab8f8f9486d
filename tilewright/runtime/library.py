"""Compiled code in memory: its symbols, its metadata, and its connection to this process.

Joining a library to the process gives it the callback into Python, and the thread pool of the first library:
a process has one pool for all libraries.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from typing import Any

from .. import config
from ..cpus import quota
from ..forks import new_in_child
from . import elf, interrupts
from .errors import BAD_DATA, LoadError, TVMError
from .packed import CALLBACK_ADDRESS, NOT_FOUND, RAISED, take_exception

METADATA = "__tw_metadata"
PACKED_CALL = "__tw_packed_call"
PARALLEL_LAUNCH = "__tw_parallel_launch"
POOL_LIMIT = "__tw_pool_limit"
MEMORY = "__tw_memory"
QUOTA = "__tw_quota"
LAST_ERROR = "__tw_last_error"
OUT_OF_MEMORY, OVERLAP, INTERRUPTED = 4, 7, 8
_UNLIMITED = 1 << 30  # CPUs of a process without a quota

_LastError = ctypes.CFUNCTYPE(ctypes.c_char_p)
_Memory = ctypes.c_void_p * 2  # the functions that allocate and free memory
_PoolLimit = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)


class Library(ABC):
    """Compiled code in memory. It must stay there for as long as this object lives."""

    name: str = "library"
    joined = False  # whether `join` has connected it to this process

    @abstractmethod
    def address(self, symbol: str) -> int:
        """The address of a symbol, 0 when there is none."""

    @abstractmethod
    def metadata(self) -> Any:
        """The metadata of the library: the decoded JSON, or its text."""


class _Pool:
    """The thread pool of the process: the first library's, never unloaded."""

    lock = new_in_child(threading.Lock())
    launch = 0
    memory: list[ctypes.c_void_p | int | None] = []
    owner: Library | None = None

    @classmethod
    def take(cls, launch: int, owner: Library) -> None:
        """Make `owner`'s pool that of this process, with the limits of `config.num_threads` in each thread."""
        cls.launch, cls.owner = launch, owner
        slot = owner.address(MEMORY)
        cls.memory = list(_Memory.from_address(slot)) if slot else []
        slot, limit = owner.address(QUOTA), quota()
        if slot:
            ctypes.c_int64.from_address(slot).value = _UNLIMITED if limit is None else math.ceil(limit)
        address = owner.address(POOL_LIMIT)
        if not address:
            return  # a library from before there were limits
        set_limit = _PoolLimit(address)
        lock = new_in_child(threading.Lock())

        def changed(thread: int, number: int | None) -> None:
            with lock:
                full = set_limit(thread, number or 0)
            if full:
                raise TVMError("config.num_threads: too many threads hold it at once; at most 64 can")

        config.num_threads.watch(changed)


def join(library: Library) -> None:
    """Connect a library to this process; joining twice changes nothing."""
    slot = library.address(PACKED_CALL)
    if slot:
        ctypes.c_void_p.from_address(slot).value = CALLBACK_ADDRESS
    slot = library.address(PARALLEL_LAUNCH)
    if slot:
        pointer = ctypes.c_void_p.from_address(slot)
        with _Pool.lock:
            if not _Pool.launch and pointer.value:
                _Pool.take(pointer.value, library)
            elif _Pool.launch:
                pointer.value = _Pool.launch
    interrupts.join(library)
    slot = library.address(MEMORY)
    # Not after code of the library has run: some of its memory may come from the previous allocator.
    if slot and _Pool.memory and not library.joined:
        _Memory.from_address(slot)[:] = _Pool.memory
    library.joined = True


def error_of(library: Library, name: str, code: int) -> BaseException:
    """The exception of a non-zero return code."""
    if code in (RAISED, NOT_FOUND):
        kept = take_exception()
        if kept is not None:
            return kept
    address = library.address(LAST_ERROR)
    told = _LastError(address)() if address else None
    text = told.decode(errors="replace") if told else ""
    if code == OUT_OF_MEMORY:
        return MemoryError(f"{name}: {text or 'out of memory in compiled code'}")
    if text and code in BAD_DATA:
        return BAD_DATA[code](text)
    if code == INTERRUPTED:
        return KeyboardInterrupt(f"{name}: {text}")
    if code == OVERLAP:
        return ValueError(f"{name}: {text}")
    if text:
        return TVMError(f"{name}: {text}")
    reasons = {
        1: "an assertion failed",
        RAISED: "a packed call failed",
        NOT_FOUND: "a packed call was not found",
    }
    return TVMError(f"{name}: {reasons.get(code, 'compiled code failed')} (code {code})")


class SharedLibrary(Library):
    """A shared object on disk, loaded into the process and unloaded when it is no longer in use."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.name = os.path.basename(self.path)
        elf.check_shared_object(self.path, METADATA)
        self._dll = _open(self.path)
        # not at exit: threads of the pool may still be in there
        weakref.finalize(self, _close, self._dll._handle).atexit = False
        if not self.address(METADATA):
            raise LoadError(f"{self.path}: not a library made by tilewright: it has no symbol {METADATA}")

    def address(self, symbol: str) -> int:
        try:
            cell = ctypes.c_char.in_dll(self._dll, symbol)
        except ValueError:
            return 0
        return ctypes.addressof(cell)

    def metadata(self) -> bytes:
        return ctypes.string_at(self.address(METADATA))


def libraries_of_process() -> list[str]:
    """The paths of the libraries made by tilewright that the dynamic linker has loaded into this process."""
    found: list[str] = []
    if not hasattr(ctypes.CDLL(None), "dl_iterate_phdr"):
        raise TVMError("the libraries of a process can be listed on Linux only: use runtime.load_module")

    def note(about: Any, size: int, data: Any) -> int:
        if about.contents.name:
            found.append(os.fsdecode(about.contents.name))
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(kind(note), None)
    return [path for path in found if _has_metadata(path)]


class _Loaded(ctypes.Structure):
    """The first fields of the dynamic linker's description of a library (`struct link_map`)."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def _has_metadata(path: str) -> bool:
    try:
        return hasattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY), METADATA)
    except OSError:  # not a file: the kernel's own library
        return False


_opened: weakref.WeakValueDictionary[str, ctypes.CDLL] = weakref.WeakValueDictionary()


def _open(path: str) -> ctypes.CDLL:
    """Load a shared object.

    The dynamic linker takes two files of the same name for one. A library that was compiled again while
    the old one is still in use is therefore loaded under a name of its own.
    """
    real = os.path.realpath(path)
    stat = os.stat(real)
    identity = f"{real}:{stat.st_ino}:{stat.st_mtime_ns}:{stat.st_size}"
    same_name = [key for key in list(_opened) if key.startswith(f"{real}:") and key != identity]
    try:
        if not same_name:
            dll = ctypes.CDLL(real, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        else:
            with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
                copy = os.path.join(folder, os.path.basename(real))
                shutil.copy(real, copy)
                dll = ctypes.CDLL(copy, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise LoadError(f"{path}: the system cannot load it: {error}") from error
    except UnicodeDecodeError as error:  # the system's message quotes names from the file
        raise LoadError(f"{path}: the system cannot load it: the names in it are damaged") from error
    _opened[identity] = dll
    return dll


def _close(handle: int) -> None:
    import _ctypes

    _ctypes.dlclose(handle)
