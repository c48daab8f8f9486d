"""The client side of a session: remote devices, arrays, modules and functions."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np

from ..runtime.devices import Device, DeviceApi, _apis
from ..runtime.layout import layout_of
from ..runtime.ndarray import NDArray, _make
from ..runtime.registry import PackedFunc
from ..runtime.timing import BenchmarkResult
from .access import Access, answered, greeted
from .base import MESSAGE, RPC_SESS_MASK, BrokenError, Connection, LateError, ProtocolError, RPCError
from .worker import Worker

_SUMMARY = 1 << 26  # bytes of an answer of a tracker
_sessions = 0
_lock = threading.Lock()


class RPCSession:
    """A connection to a server: `rpc.connect(host, port)`."""

    def __init__(
        self, ask: Callable[..., tuple[Any, list[bytes]]], name: str, close: Callable[[], None]
    ) -> None:
        global _sessions
        with _lock:
            self._index, _sessions = _sessions, _sessions + 1
        self._send, self.name, self._close = ask, name, close
        self._dropped: list[
            int
        ] = []  # sent with the next request: the garbage collector may run in the middle of one
        self._lock = threading.RLock()

    def ask(self, do: str, parts: Sequence[Any] = (), **what: Any) -> tuple[Any, list[bytes]]:
        """Send a request, and wait for its answer."""
        with self._lock:
            dropped, self._dropped = self._dropped, []
            return self._send({"do": do, "drop": dropped, **what}, parts)

    def close(self) -> None:
        """End the session; the server deletes its files and arrays."""
        self._close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # -- files -----------------------------------------------------------------------------
    def upload(self, data: str | os.PathLike[str] | bytes | bytearray, target: str | None = None) -> str:
        """Send a file, or bytes under a name; returns its remote name."""
        if isinstance(data, (bytes, bytearray)):
            if target is None:
                raise ValueError("upload: bytes need a name: upload(data, target=…)")
            content = bytes(data)
        else:
            target = target or os.path.basename(os.fspath(data))
            with open(data, "rb") as file:
                content = file.read()
        self.ask("upload", [content], name=target)
        return target

    def download(self, path: str) -> bytearray:
        """A file of the session."""
        return bytearray(self.ask("download", name=path)[1][0])

    def remove(self, path: str) -> None:
        """Delete a file of the session."""
        self.ask("remove", name=path)

    def listdir(self, path: str = "") -> list[str]:
        """The names of the session's files."""
        found: list[str] = self.ask("list")[0]
        return found

    # -- functions -------------------------------------------------------------------------
    def load_module(self, path: str) -> RemoteModule:
        """Load an uploaded library: a .so, .o or .tar file."""
        about = self.ask("load", name=path)[0]
        return RemoteModule(self, about["object"], about["name"], about["entry"])

    def get_function(self, name: str) -> PackedFunc:
        """A function that is registered on the other side, by its name."""
        made = RemoteObject(self, self.ask("global", name=name)[0]["object"])
        return PackedFunc(lambda *args: made._call(None, args), name)

    # -- devices ---------------------------------------------------------------------------
    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        """A device of the other machine."""
        if isinstance(dev_type, str):
            kind = Device.STR2MASK.get(dev_type.split()[0] if dev_type.split() else "")
            if kind is None:
                raise ValueError(f"unknown device {dev_type!r}; known are {', '.join(Device.STR2MASK)}")
        else:
            kind = int(dev_type)
        mask = (self._index + 1) * RPC_SESS_MASK + kind
        if mask not in _apis:
            _apis[mask] = _RemoteMemory(self, kind)
        return Device(mask, dev_id)

    context = device  # the older name

    # Each takes the number of the device, by default 0.
    cpu = partialmethod(device, "cpu")
    cuda = gpu = partialmethod(device, "cuda")
    cl = opencl = partialmethod(device, "opencl")
    vulkan = partialmethod(device, "vulkan")
    metal = partialmethod(device, "metal")
    rocm = partialmethod(device, "rocm")
    ext_dev = partialmethod(device, "ext_dev")

    # -- values ----------------------------------------------------------------------------
    def described(self, value: Any, parts: list[Any], copies: bool) -> Any:
        """The description of a value for the other side. Local arrays can be sent only as read-only arguments."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        of_numpy = isinstance(value, np.ndarray)
        if isinstance(value, NDArray):
            layout = value._tw_layout
            if layout.device_type // RPC_SESS_MASK == self._index + 1:
                return {"array": value.data_ptr, "shape": list(layout.shape), "dtype": layout.dtype}
            if not copies:
                raise ValueError(
                    f"the array on {value.device} is not on {self.name}; create it there: "
                    "tvm.nd.array(values, remote.cpu())"
                )
            value = value.numpy()
        if isinstance(value, np.ndarray) and copies:
            parts.append(np.ascontiguousarray(value).tobytes())
            about = {"shape": list(value.shape), "dtype": str(value.dtype), "of_numpy": of_numpy}
            return {"copy": len(parts) - 1, **about}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Device):
            kind = value.device_type
            if kind // RPC_SESS_MASK not in (0, self._index + 1):
                raise ValueError(f"{value} is a device of another session")
            return {"device": [kind % RPC_SESS_MASK, value.device_id]}
        if isinstance(value, (bytes, bytearray)):
            parts.append(bytes(value))
            return {"bytes": len(parts) - 1}
        if isinstance(value, RemoteObject):
            return {"object": value._number}
        if isinstance(value, (list, tuple)):
            return {"list": [self.described(v, parts, copies) for v in value]}
        raise TypeError(
            f"a {type(value).__name__} cannot be passed to a function of {self.name}; it takes numbers, strings and "
            "arrays that are there: tvm.nd.array(values, remote.cpu())"
        )

    def decode_value(self, result: Any, parts: list[bytes]) -> Any:
        """The value of an answer."""
        if not isinstance(result, dict):
            return result
        if "array" in result:
            return self._array(result)
        if "times" in result:
            return BenchmarkResult(result["times"])
        if "bytes" in result:
            return bytearray(parts[result["bytes"]])
        if "dict" in result:
            names, values = (self.decode_value(r, parts) for r in result["dict"])
            return dict(zip(names, values, strict=True))
        for kind, made in (("list", list), ("tuple", tuple)):
            if kind in result:
                return made(self.decode_value(r, parts) for r in result[kind])
        return RemoteObject(self, result["object"])

    def _array(self, about: dict[str, Any]) -> NDArray:
        device = self.device(*about["device"])
        layout = layout_of(about["dtype"], tuple(about["shape"]), None, device.device_type, device.device_id)
        return _make(layout, about["array"], None, _Held(self, about["array"]))


class _Held:
    """A remote object, released when it is no longer in use here."""

    __slots__ = ("_number", "_session")

    def __init__(self, session: RPCSession, number: int) -> None:
        self._session, self._number = session, number

    def __del__(self) -> None:
        self._session._dropped.append(self._number)


class _RemoteMemory(DeviceApi):
    """The memory of a kind of device on the other side."""

    def __init__(self, session: RPCSession, kind: int) -> None:
        self._session, self._kind = session, kind

    def _ask(self, do: str, parts: Sequence[Any] = (), **what: Any) -> tuple[Any, list[bytes]]:
        return self._session.ask(do, parts, **what)

    def count(self) -> int:
        found: int = self._ask("count", kind=self._kind)[0]
        return found

    def allocate(self, index: int, nbytes: int) -> int:
        made: int = self._ask("allocate", nbytes=nbytes, device=[self._kind, index])[0]
        return made

    def release(self, index: int, address: int) -> None:
        self._session._dropped.append(address)

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        self._ask("write", [ctypes.string_at(source, nbytes)], array=address)

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        (data,) = self._ask("read", array=address, nbytes=nbytes)[1] or (b"",)
        if len(data) != nbytes:  # the other side is not trusted: never read past the buffer
            raise ProtocolError(f"{self._session.name}: {len(data)} bytes arrived for an array of {nbytes}")
        ctypes.memmove(target, data, nbytes)

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        self._ask("copy", array=source, to=target)

    def part(self, index: int, address: int, offset: int, nbytes: int) -> int:
        if offset:
            raise RPCError("parts of remote arrays are not supported; copy the whole array")
        return address

    def sync(self, index: int) -> None:
        self._ask("sync", device=[self._kind, index])

    def attribute(self, index: int, name: str) -> Any:
        return self._ask("attribute", device=[self._kind, index], name=name)[0]


class RemoteObject:
    """A remote object: its methods are called on the server."""

    is_remote = True

    def __init__(self, session: RPCSession, number: int) -> None:
        self._session, self._number = session, number
        self._held = _Held(session, number)

    def _call(
        self,
        member: str | None,
        args: Sequence[Any],
        named: dict[str, Any] | None = None,
        copies: bool = False,
    ) -> Any:
        parts: list[Any] = []
        session, named = self._session, named or {}
        given = [session.described(a, parts, copies) for a in args]
        more = [session.described(a, parts, copies) for a in named.values()]
        result, back = session.ask(
            "call",
            parts,
            object=self._number,
            member=member,
            args=given,
            names=list(named),
            named=more,
        )
        return session.decode_value(result, back)

    def _time(self, member: str | None, device: Device, options: dict[str, Any], args: Sequence[Any]) -> Any:
        parts: list[Any] = []
        given = [self._session.described(a, parts, False) for a in args]
        where = [device.device_type % RPC_SESS_MASK, device.device_id]
        results, _ = self._session.ask(
            "time",
            parts,
            object=self._number,
            member=member,
            device=where,
            options=options,
            args=given,
        )
        return BenchmarkResult(results)

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A function that measures one of the object's functions remotely: see `runtime.timing.time_evaluator`."""
        device = dev or Device(1, 0)
        options = {"number": number, "repeat": repeat, **options}
        return lambda *args: self._time(func_name, device, options, args)

    def __call__(self, *args: Any) -> Any:
        return self._call(None, args)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **named: self._call(name, args, named, copies=True)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._number} on {self._session.name}>"


class RemoteModule(RemoteObject):
    """A library that is loaded on the other side."""

    type_key = "rpc"
    entry_name = "__tvm_main__"

    def __init__(self, session: RPCSession, number: int, name: str, entry: str | None) -> None:
        super().__init__(session, number)
        self.name, self._entry = name, entry

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """A function of the module, by its name."""
        member = self._entry if name == self.entry_name and self._entry else name
        made = RemoteObject(
            self._session, self._session.ask("member", object=self._number, member=member)[0]["object"]
        )
        return PackedFunc(lambda *args: made._call(None, args), name)

    __getitem__ = get_function

    def __call__(self, *args: Any) -> Any:
        return self._call(self._entry or self.entry_name, args)

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A function that measures one of the module's functions remotely: see `runtime.timing.time_evaluator`."""
        member = self._entry if func_name == self.entry_name and self._entry else func_name
        return super().time_evaluator(member, dev, number, repeat, **options)


class LocalSession(RPCSession):
    """A session within this process, for trying a program without another machine."""

    def __init__(self) -> None:
        worker = Worker()

        def ask(message: dict[str, Any], parts: Sequence[bytes]) -> tuple[Any, list[bytes]]:
            return worker.answer(message, parts)

        super().__init__(ask, "this process", worker.close)


def connect(
    url: str,
    port: int,
    key: str = "",
    session_timeout: float = 0,
    session_constructor_args: Sequence[Any] | None = None,
    enable_logging: bool = False,
    *,
    access: Access | None = None,
    wait: float | None = 600.0,
) -> RPCSession:
    """A session with a server, which ends after `session_timeout` seconds (0: at the server's own limit).

    A busy server is waited for, `wait` seconds (None: without limit). `access` is the shared secret and TLS, by default
    from environment variables.
    """
    if session_constructor_args:
        raise RPCError("rpc.connect(session_constructor_args=…): there are no sessions within sessions")
    known = access if access is not None else Access.of()
    connection = known.connect(url, port)
    greeting = time.monotonic()
    greeted(connection, known, "server", key=key, timeout=session_timeout)
    try:
        welcome = answered(connection.receive(wait)[0], connection.name)
    except LateError:
        connection.close()
        raise LateError(
            f"{connection.name}: the server has been busy with another client for {wait:g} s"
        ) from None
    except BaseException:
        connection.close()
        raise
    connection.most = MESSAGE
    limit = welcome.get("timeout") if isinstance(welcome, dict) else None
    limit = limit if isinstance(limit, (int, float)) else math.inf
    began = max(greeting, time.monotonic() - 1.0)  # there it was before the welcome arrived here

    def ask(message: dict[str, Any], parts: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        try:
            connection.send(message, parts)
            answer, back = connection.receive()
        except BrokenError as error:
            if time.monotonic() - began < limit:
                raise
            raise BrokenError(f"{error}: the session has reached its limit of {limit:g} s") from None
        return answered(answer, connection.name), back

    return RPCSession(ask, connection.name, connection.close)


class TrackerSession:
    """A connection to a tracker, which assigns servers to clients: `rpc.connect_tracker(host, port)`.

    It reconnects if the tracker is restarted.
    """

    def __init__(self, url: str, port: int, patience: float = 10.0, access: Access | None = None) -> None:
        self._place, self._patience = (url, int(port)), patience
        self._access = access if access is not None else Access.of()
        self._lock = threading.Lock()
        self._connection: Connection | None = self._open()

    def _open(self) -> Connection:
        made = greeted(self._access.connect(*self._place, timeout=self._patience), self._access, "tracker")
        try:
            answered(made.receive(self._patience)[0], made.name)
        except BaseException:
            made.close()
            raise
        made.most = _SUMMARY
        return made

    def _ask(self, message: dict[str, Any], wait: float | None = 0.0) -> Any:
        """Send a request whose answer may take `wait` seconds; reconnects if the connection breaks."""
        until = math.inf if wait is None else time.monotonic() + wait + self._patience
        pause = 0.05
        with self._lock:
            while True:
                try:
                    self._connection = self._connection or self._open()
                    self._connection.send(message)
                    left = None if wait is None else max(0.1, until - time.monotonic())
                    return answered(self._connection.receive(left)[0], self._connection.name)
                except BrokenError:
                    self.close()
                    if time.monotonic() + pause >= until:
                        raise
                    time.sleep(pause)
                    pause = min(2 * pause, 2.0)

    def summary(self) -> dict[str, Any]:
        """The servers, and the numbers of free servers and waiting clients for each key."""
        found: dict[str, Any] = self._ask({"do": "summary"})
        return found

    def text_summary(self) -> str:
        """The summary as text."""
        about = self.summary()
        rows = ["Server List", "-" * 40, "server-address           key", "-" * 40]
        rows += [f"{s['addr']:<24} {s['key']}" for s in about["server_info"]]
        rows += ["", "Queue Status", "-" * 40, "key             total  free  pending", "-" * 40]
        for key, queue in about["queue_info"].items():
            total = sum(s["key"] == f"server:{key}" for s in about["server_info"])
            rows.append(f"{key:<15} {total:>5} {queue['free']:>5} {queue['pending']:>8}")
        return "\n".join(rows)

    def request(
        self,
        key: str,
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 5,
        session_constructor_args: Sequence[Any] | None = None,
        *,
        wait: float | None = 600.0,
    ) -> RPCSession:
        """A session with a server of a key, as soon as one is free: within `wait` seconds (None: without limit).

        If no server has the key, that is an error after half a minute.
        """
        last: RPCError | None = None
        until = math.inf if wait is None else time.monotonic() + wait
        for _again in range(max(1, max_retry)):
            left = None if wait is None else max(0.0, until - time.monotonic())
            host, port, match = self._place_of(key, priority, left)
            settled = {"do": "settle", "match": match}
            try:
                made = connect(
                    host,
                    port,
                    match,
                    session_timeout,
                    session_constructor_args,
                    access=self._access,
                    wait=self._patience,
                )
            except RPCError as error:
                last = error
                with contextlib.suppress(RPCError):
                    self._ask({**settled, "taken": False})
                time.sleep(0.1)
                continue
            with contextlib.suppress(RPCError):  # the server reports it as well
                self._ask({**settled, "taken": True})
            return made
        raise RPCError(
            f"{self._name}: no session with a server of {key!r} after {max_retry} attempts ({last})"
        )

    def _place_of(self, key: str, priority: int, wait: float | None) -> tuple[str, int, str]:
        """The address of an assigned server, and the key to send to it."""
        found = self._ask({"do": "request", "key": key, "priority": priority, "wait": wait}, wait)
        place = found if isinstance(found, dict) else {}
        host, port, match = (place.get(field) for field in ("host", "port", "match"))
        if not isinstance(host, str) or not isinstance(port, int) or not isinstance(match, str):
            raise ProtocolError(f"{self._name}: the tracker does not say where a server is")
        return host, port, match

    @property
    def _name(self) -> str:
        return f"{self._place[0]}:{self._place[1]}"

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], Any],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
        *,
        wait: float | None = 600.0,
    ) -> Any:
        """The result of a function that is called with a session of a key."""
        session = self.request(key, priority, session_timeout, max_retry, wait=wait)
        try:
            return func(session)
        finally:
            session.close()

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connect_tracker(url: str, port: int, *, access: Access | None = None) -> TrackerSession:
    """A connection to a tracker; `access` as for `connect`."""
    return TrackerSession(url, port, access=access)


def request_remote(
    device_key: str,
    host: str | None = None,
    port: int | None = None,
    priority: int = 1,
    timeout: float = 60,
) -> RPCSession:
    """A session with a server of a key, from the tracker at `host` and `port`, or in the environment variables
    TVM_TRACKER_HOST and TVM_TRACKER_PORT; it ends after `timeout` seconds."""
    where = host or os.environ.get("TVM_TRACKER_HOST", "127.0.0.1")
    number = int(port or os.environ.get("TVM_TRACKER_PORT", "9190"))
    return connect_tracker(where, number).request(device_key, priority, timeout)


@dataclass(frozen=True)
class Leases:
    """Sessions with the servers of a key, one after the other, from the tracker at `host` and `port`."""

    host: str
    port: int
    key: str

    def session(self, seconds: float) -> RPCSession:
        """A session with one of them, which ends after so many seconds."""
        tracker = connect_tracker(self.host, self.port)
        try:
            return tracker.request(self.key, session_timeout=math.ceil(seconds))
        finally:
            tracker.close()

    @property
    def there(self) -> bool:
        """Whether a tracker answers that has a server of the key."""
        return bool(_servers_of(self.key, self.host, self.port))


_HERE = ("127.0.0.1", "localhost", "0.0.0.0", "::1")


def servers_here(device_key: str, host: str, port: int) -> bool:
    """Whether a tracker listens at an address of this machine and its servers of a key run here too."""
    if host not in _HERE:
        return False
    hosts = _servers_of(device_key, host, port)
    return bool(hosts) and all(h in _HERE for h in hosts)


def _servers_of(device_key: str, host: str, port: int) -> list[str]:
    """The machines of a tracker's servers of a key; none without a tracker."""
    try:
        # Another program may listen there, and never answer.
        session = TrackerSession(host, port, patience=2.0)
        try:
            known = session.summary()["server_info"]
        finally:
            session.close()
    except (RPCError, OSError):
        return []
    return [s["addr"].rpartition(":")[0] for s in known if s["key"] == f"server:{device_key}"]
