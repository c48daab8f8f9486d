"""Sessions with other machines, which are processes of this one here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rpc_peers import until

import tilewright as tvm
from tilewright import rpc, te
from tilewright.rpc.client import servers_here


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    A, B = te.placeholder((8,), name="A"), te.placeholder((8,), name="B")
    C = te.compute((8,), lambda i: A[i] * 2.0 + B[i], name="C")
    made = tmp_path_factory.mktemp("rpc") / "add.so"
    tvm.build(te.create_schedule(C.op), [A, B, C], "llvm", name="add").export_library(made)
    return made


@pytest.fixture(scope="module")
def tracker() -> Iterator[rpc.Tracker]:
    with rpc.Tracker(port=9500, port_end=9900) as made:
        yield made


@pytest.fixture(scope="module")
def server(tracker: rpc.Tracker) -> Iterator[rpc.Server]:
    with rpc.Server(port=9500, port_end=9900, key="board", tracker_addr=("127.0.0.1", tracker.port)) as made:
        until(lambda: servers_here("board", "127.0.0.1", tracker.port))
        yield made


@pytest.fixture
def remote(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session with this process, or with a server."""
    if request.param == "local":
        made: rpc.RPCSession = rpc.LocalSession()
    else:
        request.getfixturevalue("server")
        place = request.getfixturevalue("tracker")
        made = rpc.connect_tracker("127.0.0.1", place.port).request("board")
    yield made
    made.close()


both = pytest.mark.parametrize("remote", ["local", "server"], indirect=True)


@both
def test_a_library_runs_there(remote: rpc.RPCSession, library: Path) -> None:
    assert remote.upload(library) == "add.so" and remote.listdir() == ["add.so"]
    module, dev = remote.load_module("add.so"), remote.cpu()
    assert dev.exist and str(dev).startswith("remote[") and str(dev).endswith("]:cpu(0)")
    a, b = np.arange(8, dtype="float32"), np.ones(8, "float32")
    arrays = [tvm.nd.array(x, dev) for x in (a, b)]
    c = tvm.nd.empty((8,), "float32", dev)
    module(*arrays, c)
    np.testing.assert_array_equal(c.numpy(), a * 2 + b)
    np.testing.assert_array_equal(c.copyto(tvm.cpu()).numpy(), c.numpy())
    module["add"](c, arrays[1], c.copyto(arrays[0]))
    np.testing.assert_array_equal(arrays[0].numpy(), (a * 2 + b) * 2 + b)
    times = module.time_evaluator(module.entry_name, dev, number=2, repeat=3)(*arrays, c)
    assert len(times.results) == 3 and times.mean > 0
    assert remote.download("add.so") == library.read_bytes()
    remote.remove("add.so")
    assert remote.listdir() == []


@both
def test_arrays_are_forgotten_there(remote: rpc.RPCSession) -> None:
    dev = remote.cpu()
    first = tvm.nd.array(np.zeros(4, "int8"), dev)
    place = first.data_ptr
    del first
    remote.listdir()  # what is not needed goes with the next request
    with pytest.raises(tvm.TVMError, match=f"array {place} does not belong to this session"):
        remote.ask("read", array=place, nbytes=4)


@both
def test_what_is_wrong_is_told(remote: rpc.RPCSession, library: Path) -> None:
    with pytest.raises((tvm.TVMError, OSError), match="there is no such file"):
        remote.load_module("nope.so")
    with pytest.raises((tvm.TVMError, ValueError), match=r"there is no global function 'no\.such'"):
        remote.get_function("no.such")
    with pytest.raises(tvm.TVMError, match="files of a session must be in its folder"):
        remote.upload(b"x", "../escape")
    with pytest.raises(ValueError, match=r"bytes need a name"):
        remote.upload(b"x")
    remote.upload(library)
    module = remote.load_module("add.so")
    with pytest.raises((tvm.TVMError, AttributeError), match="has no function 'sub'; it has: add"):
        module["sub"]
    here = [tvm.nd.array(np.zeros(8, "float32"))] * 3
    with pytest.raises(ValueError, match=r"create it there: tvm.nd.array\(values, remote.cpu\(\)\)"):
        module(*here)
    with pytest.raises((tvm.TVMError, ValueError, TypeError)):
        module(*[tvm.nd.array(np.zeros(5, "float32"), remote.cpu())] * 3)
    assert remote.listdir() == ["add.so"]  # the session goes on


def test_devices_of_sessions_are_named_with_the_others() -> None:
    dev = rpc.LocalSession().cpu()
    with pytest.raises(ValueError, match=r"device metal\(0\) is not available .*remote\[\d+\]:cpu"):
        tvm.nd.empty((1,), "float32", tvm.metal(0))
    assert not tvm.nd.empty((0,), "float32", dev).numpy().size


def test_functions_that_are_registered() -> None:
    @tvm.register_func("tests.rpc.join", override=True)
    def join(text: str, number: int, array: tvm.nd.NDArray) -> str:
        return f"{text}{number}{array.numpy().sum():g}"

    session = rpc.LocalSession()
    given = tvm.nd.array(np.ones((2, 3), "float32"), session.cpu())
    assert session.get_function("tests.rpc.join")("n", 1, given) == "n16"


@pytest.mark.slow
def test_a_model_runs_there(server: rpc.Server, tracker: rpc.Tracker, tmp_path: Path) -> None:
    from tilewright import relay
    from tilewright.contrib import graph_executor

    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.add(x, relay.const(np.float32(1)))))
    lib = relay.build(mod, target="llvm")
    lib.export_library(str(tmp_path / "net.so"))
    session = rpc.connect_tracker("127.0.0.1", tracker.port).request("board")
    session.upload(tmp_path / "net.so")
    module = graph_executor.GraphModule(session.load_module("net.so")["default"](session.cpu()))
    values = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    module.set_input("x", values)
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.maximum(values + 1, 0))
    assert module.get_input_info() == ({"x": (2, 3)}, {"x": "float32"})
    assert module.benchmark(session.cpu(), number=1, repeat=2).mean > 0
    module.set_input("x", values.astype("float64"))  # an array of NumPy is converted there as it is here
    assert module.module.time_evaluator("run", session.cpu(), number=1, repeat=2)().mean > 0
    session.close()


def test_servers_are_handed_out_in_turn(server: rpc.Server, tracker: rpc.Tracker) -> None:
    known = rpc.connect_tracker("127.0.0.1", tracker.port)
    first = known.request("board")
    got: list[Any] = []

    def other() -> None:
        second = rpc.connect_tracker("127.0.0.1", tracker.port).request("board")
        got.append(second.listdir())
        second.close()

    waiting = threading.Thread(target=other)
    waiting.start()
    until(lambda: known.summary()["queue_info"]["board"]["pending"])
    assert not got and f"127.0.0.1:{server.port}" in known.text_summary()
    first.close()
    waiting.join()
    assert got == [[]]
    assert known.request_and_run("board", lambda session: session.cpu(0).exist)


def test_a_session_that_dies_takes_nothing_along(tracker: rpc.Tracker, server: rpc.Server) -> None:
    known = rpc.connect_tracker("127.0.0.1", tracker.port)
    session = known.request("board", session_timeout=0.2)
    with pytest.raises(tvm.TVMError, match=r"has closed the connection|connection broke"):
        until(lambda: session.listdir() is None)  # which it never is
    assert known.request_and_run("board", lambda again: again.listdir()) == []


def test_a_server_ends_with_its_session() -> None:
    with rpc.Server(port=9500, port_end=9900, key="own") as made:
        with pytest.raises(tvm.TVMError, match="the key does not match this server"):
            rpc.connect("127.0.0.1", made.port, key="another")
        session = rpc.connect("127.0.0.1", made.port, key="own")
        os.kill(made._process.pid, signal.SIGTERM)
        with pytest.raises(tvm.TVMError, match=r"has closed the connection|connection broke"):
            until(lambda: session.listdir() is None)
    with pytest.raises(tvm.TVMError, match=r"no connection .*is a server running there"):
        rpc.connect("127.0.0.1", made.port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_session_is_closed(number: signal.Signals) -> None:
    """The server ends after it, rather than in the midst of it."""
    program = f"""
import os
from tilewright.rpc import server
close = server.Folder.close
def closing(self):
    close(self)
    os.kill(os.getpid(), {int(number)})
server.Folder.close = closing
server.main(["--port", "0", "--host", "127.0.0.1"])
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        rpc.connect("127.0.0.1", port).close()
        assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0


def test_strangers_are_not_listened_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        threading.Thread(target=lambda: stranger.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n")).start()
        with pytest.raises(tvm.TVMError, match="the other side does not use tilewright's protocol"):
            rpc.connect("127.0.0.1", port)
    assert not servers_here("board", "10.0.0.7", 9190)


@pytest.mark.slow
def test_a_tuner_measures_here_when_the_servers_are_here(server: rpc.Server, tracker: rpc.Tracker) -> None:
    from tilewright import autotvm
    from tilewright.testing.autotvm import get_sample_task

    task, _ = get_sample_task()
    runner = autotvm.RPCRunner("board", "127.0.0.1", tracker.port, repeat=1)
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(2, autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1), runner))
    assert tuner.best_flops > 0
    runner.close()
