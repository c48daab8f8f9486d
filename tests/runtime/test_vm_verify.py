"""The verifier of the virtual machine's programs: what is proven, what is tested when it runs, what is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.errors import LoadError
from tilewright.runtime.vm import Executable, VirtualMachine
from tilewright.runtime.vm_sizes import Sizes, constant, known

Body = list[Any]
X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


@pytest.fixture(scope="module")
def honest() -> tuple[Any, Any]:
    """A program with one kernel over rows, `main(x: (?, 4), w: (4,)) -> (?, 4)`, and its library."""
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(4,))
    exe = relay.vm.compile(relay.Function([x, w], relay.exp(x) + w), "llvm")
    code, library = exe.save()
    (length,) = struct.unpack("<Q", code[8:16])
    return json.loads(bytes(code[16 : 16 + length])), library


def load(data: Any, library: Any) -> VirtualMachine:
    text = json.dumps(data).encode()
    params = bytes(relay.save_param_dict({}))
    code = b"TWVM\1\0\0\0" + struct.pack("<Q", len(text)) + text + params
    return VirtualMachine(Executable.load_exec(code, library), tvm.cpu())


def changed(honest: tuple[Any, Any], change: Callable[[Any], None]) -> VirtualMachine:
    data = json.loads(json.dumps(honest[0]))
    change(data)
    return load(data, honest[1])


def with_body(honest: tuple[Any, Any], *body: Any) -> VirtualMachine:
    return changed(honest, lambda d: d["functions"][0].update(body=list(body)))


def general(honest: tuple[Any, Any]) -> tuple[int, Any]:
    """The number of the kernel for any number of rows, and its call."""
    found: Any = []

    def look(body: Any) -> None:
        for i in body:
            if i[0] == "run" and i[4]:
                found.append(i)
            for inner in [b for _, b in i[1]] if i[0] == "switch" else ():
                look(inner)

    look(honest[0]["functions"][0]["body"])
    return found[0][1], found[0]


def test_an_honest_program_runs_and_needs_one_test(honest: tuple[Any, Any]) -> None:
    machine = changed(honest, lambda d: None)
    np.testing.assert_allclose(machine.run(X, X[0]).numpy(), np.exp(X) + X[0], rtol=1e-6)
    assert [line.strip() for line in machine.source.splitlines() if "misfit" in line or "fits" in line] == []
    assert machine.source.count("too_large") == 1  # the number of rows is an int32 for the kernel


# ---------------------------------------------------------------------------- refused when it is read
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([["view", 9, 1, [100000, 4]], ["ret", 9]], "elements fewer than its use needs"),
        ([["view", 9, 1, [-1, -4]], ["ret", 9]], "is not the number of a register or a size"),
        ([["get", 9, 0, 1], ["ret", 9]], "register 0 is not a tuple with a field 1"),
        ([["tuple", 9, [0]], ["size", 0, 9, 0], ["ret", 9]], "register 9 holds a tuple, and a tensor is needed"),
        ([["size", 0, 0, 2], ["ret", 0]], "register 0 has no dimension 2"),
        ([["let", 0, ["//", 4, 0]], ["ret", 0]], "a size is divided by 0"),
        ([["let", 0, ["-", 4, 5]], ["ret", 0]], "a size is -1"),
        ([["let", 0, 2**70], ["ret", 0]], "is not a size"),
        ([["apply", 9, 0, []], ["ret", 9]], "register 0 does not hold a function"),
        ([["recur", 9, [1, 0]], ["ret", 9]], "'x' of function 'main' is given a value of another type"),
        ([["recur", 9, [0]], ["ret", 9]], "called with another number of arguments"),
        ([["open", 0, [0], [9]], ["ret", 9]], "cannot compile kernels"),
        ([["closure", 9, 0, [["self"]]], ["ret", 9]], "captures another number of values"),
        ([["shapes", [0], "dyn.zeros", {"a": float("inf")}, [0]], ["ret", 0]], "the attributes of dyn.zeros"),
        ([["if", 0, [["kill", [0]]], []], ["ret", 0]], "register 0 is read and has no value"),
        ([["ret", 0], ["ret", 0]], "instructions follow 'ret'"),
    ],
)  # fmt: skip
def test_refused_when_it_is_read(honest: tuple[Any, Any], body: Body, reason: str) -> None:
    with pytest.raises(LoadError, match=f"the program is damaged: .*{reason}"):
        with_body(honest, *body)


def test_a_kernel_with_other_arguments(honest: tuple[Any, Any]) -> None:
    number, call = general(honest)
    _, _, args, outs, symbols = call
    size = ["size", 0, 0, 0]
    for bad, reason in (
        (["run", number, [1, 1, *args[2:]], outs, symbols], None),
        (["run", number, args, [[*outs[0][:2], [1, 1]]], ["s0"]], None),
        (["run", number, args, [[outs[0][0], "float64", ["s0", 4]]], ["s0"]], "is given float64"),
        (["run", number, args[:-1], outs, ["s0"]], "another number of arguments"),
        (["run", number, [0 if a == ["o", 0] else a for a in args], [], ["s0"]], "only results may be"),
        (["run", number, args, [[0, "float32", ["s0", 4]]], ["s0"]], "overwrites another value"),
        (["run", number, args, [*outs, [8, "float32", [4]]], ["s0"]], "does not write each of its results"),
        (["run", number, args, outs, [2**31]], "for a number of int32"),
    ):
        body = [size, bad, ["ret", outs[0][0]]]
        if reason is None:  # known only when it runs
            machine = with_body(honest, *body)
            with pytest.raises(tvm.TVMError, match="does not have enough memory"):
                machine.run(X, X[0])
        else:
            with pytest.raises(LoadError, match=reason):
                with_body(honest, *body)


def test_nothing_nests_without_end(honest: tuple[Any, Any]) -> None:
    x = relay.var("c", shape=(), dtype="bool")
    code, library = relay.vm.compile(relay.Function([x], x), "llvm").save()
    (length,) = struct.unpack("<Q", code[8:16])
    data = json.loads(bytes(code[16 : 16 + length]))
    body: Body = [["move", 1, 0]]
    for _ in range(100):
        body = [["if", 0, body, []]]
    data["functions"][0]["body"] = [*body, ["ret", 0]]
    with pytest.raises(LoadError, match="blocks nest deeper than 90"):
        load(data, library)
    size: Any = 1
    for _ in range(180):
        size = ["+", size, 1]
    with pytest.raises(LoadError, match="a size nests deeper than 150"):
        with_body(honest, ["let", 0, size], ["ret", 0])


# ---------------------------------------------------------------------------- tested when it runs
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([["size", 0, 0, 0], ["let", 1, ["*", "s0", 1000]], ["view", 9, 0, ["s1", 4]], ["ret", 9]], "enough memory"),
        ([["size", 0, 0, 0], ["let", 1, ["-", "s0", 5]], ["view", 9, 0, ["s1", 4]], ["ret", 9]], "size of -2"),
        ([["size", 0, 0, 0], ["let", 1, ["-", "s0", 3]], ["let", 2, ["//", "s0", "s1"]], ["ret", 0]], "divisor other than 0"),
        ([["size", 0, 0, 0], *[["let", 0, ["*", "s0", "s0"]]] * 70, ["ret", 0]], "too large for the program"),
        ([["closure", 9, 0, []], ["apply", 8, 9, [0]], ["ret", 8]], "a function of 1 arguments"),
        ([["closure", 9, 0, []], ["apply", 8, 9, [1, 1]], ["ret", 8]], "an argument of a function should be"),
        ([["size", 0, 0, 0], ["shapes", [1, 2], "dyn.zeros", {}, [0]], ["ret", 0]], "dyn.zeros: "),
    ],
)  # fmt: skip
def test_refused_when_it_runs(honest: tuple[Any, Any], body: Body, reason: str) -> None:
    with pytest.raises(tvm.TVMError, match=reason):
        with_body(honest, *body).run(X, X[0])


def test_a_view_that_is_not_larger_is_one(honest: tuple[Any, Any]) -> None:
    machine = with_body(
        honest, ["size", 0, 0, 0], ["let", 1, ["*", 2, "s0"]], ["view", 9, 0, ["s1", 2]], ["ret", 9]
    )
    assert "misfit" not in machine.source  # 2 n x 2 is n x 4
    np.testing.assert_array_equal(machine.run(X, X[0]).numpy(), X.reshape(6, 2))
    half = with_body(
        honest, ["size", 0, 0, 0], ["let", 1, ["//", "s0", 2]], ["view", 9, 0, ["s1", 4]], ["ret", 9]
    )
    np.testing.assert_array_equal(half.run(X, X[0]).numpy(), X[:1])


def test_sizes_are_compared_as_polynomials() -> None:
    sizes = Sizes()
    a, b = sizes.fresh(), sizes.fresh()
    names = {"a": a, "b": b}
    assert sizes.of(("*", ("+", "a", "b"), 2), names) == sizes.of(("+", ("*", 2, "b"), ("*", "a", 2)), names)
    assert (
        sizes.of(("//", "a", 2), names) == sizes.of(("//", "a", 2), names) != sizes.of(("//", "b", 2), names)
    )
    assert known(sizes.of(("-", "a", "a"), names)) == 0
    assert sizes.replaced(sizes.multiply(a, b), {a[0][0][0]: constant(3)}) == sizes.multiply(constant(3), b)
    large = a
    for _ in range(40):  # never many terms
        large = sizes.multiply(sizes.add(large, b), sizes.add(large, a))
    assert len(large) <= 24
