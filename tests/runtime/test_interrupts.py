"""Ctrl-C while compiled code runs, or while LLVM compiles: the prompt is back within a second."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc as Linux has them")

# A thread waits until `begun()` holds and sends the signal; the main thread says how long it took to come back.
_HEAD = """
import os, signal, sys, threading, time
import numpy as np
import tilewright as tvm
from tilewright import relay, te
from tilewright.script import from_source

sent = []

def when(begun):
    def watch():
        while not begun():
            time.sleep(0.001)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=watch, daemon=True).start()

def interrupted(work):
    try:
        work()
    except KeyboardInterrupt:
        spent = time.monotonic() - sent[-1]
        assert spent < 1, f"back after {spent:.2f} s"
        print("interrupted", flush=True)

def sums(n, parallel):
    '''256 sums of n sines.'''
    A = te.placeholder((256,), name="A")
    S = te.placeholder((n,), "int8", name="S")
    k = te.reduce_axis((0, n), "k")
    B = te.compute((256,), lambda i: te.sum(te.sin(A[i] + S[k].astype("float32")), axis=k), name="B")
    s = te.create_schedule(B.op)
    if parallel:
        s[B].parallel(B.op.axis[0])
    return tvm.build(s, [A, S, B], "llvm").entry_func

a, b = (tvm.nd.array(np.full(256, 7, "float32")) for _ in range(2))
many = tvm.nd.empty((1 << 28,), "int8")  # whatever it holds: it takes too long to be summed
few = tvm.nd.array(np.zeros(100, "int8"))
result = np.asarray(b)
"""

_KERNELS = {
    "constant": """
f = sums(1 << 28, False)
when(lambda: result[0] != 7)
interrupted(lambda: f(a, many, b))
""",
    "symbolic": """
f = sums(te.var("n"), False)
when(lambda: result[0] != 7)
interrupted(lambda: f(a, many, b))
f(a, few, b)  # as if nothing had been
np.testing.assert_allclose(b.numpy(), 100 * np.sin(7), rtol=1e-4)
""",
    "parallel": """
f = sums(te.var("n"), True)
when(lambda: result[0] != 7)
interrupted(lambda: f(a, many, b))
f(a, few, b)
np.testing.assert_allclose(b.numpy(), 100 * np.sin(7), rtol=1e-4)
""",
    "bound": """
f = sums(te.var("n"), True).bind(a, many, b)
when(lambda: result[0] != 7)
interrupted(f)
""",
    "while": """
f = tvm.build(from_source('''
@T.prim_func
def wait(B: T.Buffer((256,), "float32")):
    B[0] = T.float32(0)
    while B[0] < T.float32(1):
        B[1] = B[1] + T.float32(1)
'''), target="llvm")
when(lambda: result[0] != 7)
interrupted(lambda: f(b))
""",
    "child": """
f = sums(te.var("n"), False)
f(a, few, b)
result[:] = 7
child = os.fork()
if child == 0:
    when(lambda: result[0] != 7)
    interrupted(lambda: f(a, many, b))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    "LLVM": """
def children():
    return bool(open(f"/proc/self/task/{threading.main_thread().native_id}/children").read())

k = te.reduce_axis((0, 150), "k")
A = te.placeholder((4096,), name="A")
B = te.compute((16,), lambda i: te.sum(te.exp(A[i + k]), axis=k), name="B")
s = te.create_schedule(B.op)
for axis in (*s[B].op.reduce_axis, *s[B].op.axis):
    s[B].unroll(axis)
big = tvm.build(s, [A, B], "llvm")
when(children)
interrupted(lambda: big.entry_func)
assert not children()
f = sums(te.var("n"), False)
f(a, few, b)
""",
}


def run(program: str) -> str:
    """What a program prints. One that was late may try again: other programs may have had the cores for a second."""
    command = [sys.executable, "-W", "ignore", "-c", _HEAD + program]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if "back after" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", _KERNELS)
def test_ctrl_c_ends_what_runs(what: str) -> None:
    assert run(_KERNELS[what]) == "interrupted\n"


@pytest.mark.slow
def test_ctrl_c_ends_a_model_between_its_kernels() -> None:
    program = """
x = relay.var("x", shape=(512, 512))
w = relay.const(np.eye(512, dtype="float32"))
y = x
for _ in range(400):
    y = relay.nn.dense(y, w)
m = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")["default"](tvm.cpu())
m.run()
when(lambda: m._call is None)
def work():
    for _ in range(100):
        m.run()
interrupted(work)
m.run(x=np.ones((512, 512), "float32"))
assert (m.get_output(0).numpy() == 1).all()
"""
    assert run(program) == "interrupted\n"


@pytest.mark.slow
def test_an_interrupt_before_a_kernel_is_not_one_of_the_kernel() -> None:
    program = """
f = sums(te.var("n"), False)
def wait():
    when(lambda: True)
    while True:
        time.sleep(0.01)

for _ in range(3):
    interrupted(wait)
    f(a, few, b)
"""
    assert run(program) == "interrupted\n" * 3


@pytest.mark.slow
def test_whoever_handles_the_signal_decides() -> None:
    """A handler of the user's waits for the kernel, as Python's do, and the kernel ends as it should."""
    program = """
seen = []
f = sums(te.var("n"), True)
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
enough = tvm.nd.array(np.zeros(1 << 20, "int8"))
when(lambda: result[0] != 7)
f(a, enough, b)
while not sent:
    time.sleep(0.001)
assert seen == [1]
np.testing.assert_allclose(b.numpy(), (1 << 20) * np.sin(7), rtol=0.05)
"""
    run(program)


@pytest.mark.slow
def test_threads_that_are_not_the_main_one_go_on() -> None:
    program = """
f = sums(te.var("n"), True)
enough = tvm.nd.array(np.zeros(1 << 20, "int8"))
done = threading.Event()
def work():
    f(a, enough, b)
    done.set()
def wait():
    threading.Thread(target=work).start()
    when(lambda: result[0] != 7)
    while not done.is_set():
        time.sleep(0.01)
interrupted(wait)
done.wait()
np.testing.assert_allclose(b.numpy(), (1 << 20) * np.sin(7), rtol=0.05)
"""
    assert run(program) == "interrupted\n"


def test_short_kernels_have_nothing_added() -> None:
    import tilewright as tvm
    from tilewright import te

    A = te.placeholder((1024,), name="A")
    B = te.compute((1024,), lambda i: A[i] + 1.0, name="B")
    assert "__tw_watch" not in tvm.build(te.create_schedule(B.op), [A, B], "llvm").text


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["i + relay.const(1)", "i"], ids=["kernels", "instructions"])
def test_ctrl_c_ends_a_program_of_the_virtual_machine_that_does_not_end(steps: str) -> None:
    source = f"""
c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(), dtype="int32")
i, kind = relay.var("i", shape=(), dtype="int32"), relay.TensorType((), "int32")
loop = relay.Var("loop", relay.FuncType([kind], kind))
fn = relay.Function([i], relay.If(c, relay.Call(loop, [{steps}]), i), kind)
made = relay.Function([c, x], relay.Let(loop, fn, relay.Call(loop, [x])))
m = tvm.runtime.vm.VirtualMachine(relay.vm.compile(made, "llvm"), tvm.cpu())
assert m.run(np.array(False), np.int32(7)).numpy() == 7

def runs():
    frame = sys._current_frames()[threading.main_thread().ident]
    return frame.f_code.co_filename == "<virtual machine>"

when(runs)
interrupted(lambda: m.run(np.array(True), np.int32(0)))
assert m.run(np.array(False), np.int32(7)).numpy() == 7
"""
    assert run(source) == "interrupted\n"


@pytest.mark.slow
def test_ctrl_c_is_not_lost_where_memory_goes_back() -> None:
    """Python drops what is raised in `__del__`: the virtual machine frees memory all the time."""
    program = """
from tilewright.runtime.pool import Pool
pool = Pool()
def work():
    began = len(sent)
    when(lambda: time.sleep(0.002) or True)
    while len(sent) == began or time.monotonic() < sent[-1] + 1:
        pool.take(1000)
    os._exit(1)
for _ in range(100):
    interrupted(work)
"""
    assert run(program) == "interrupted\n" * 100
