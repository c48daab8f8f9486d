"""Indices and divisors in the data of a model: legal ones as NumPy, others an error that names the node."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay, te, topi
from tilewright.error import DivisionByZeroError, OutOfBoundsError, TVMError
from tilewright.relay.analysis import post_order

X = np.arange(12, dtype="float32").reshape(4, 3)
FAR = [4, 100, 10**7, 2**31 - 1, 2**31, 2**32, 2**33, 2**63 - 1, -5, -(2**31), -(2**33), -(2**63)]


def run(expr: Any, kind: str = "graph", **inputs: Any) -> Any:
    """The result of an expression over its variables."""
    mod = tvm.IRModule.from_expr(expr)
    made = relay.create_executor(kind, mod).evaluate()(*(inputs[p.name_hint] for p in mod["main"].params))
    return made.numpy()


def var(name: str, value: Any) -> Any:
    return relay.var(name, shape=value.shape, dtype=str(value.dtype))


def indexing(name: str, index: Any) -> Any:
    """A call that indexes an axis of four with the first element of `index`, (1,) of an integer type."""
    x, i = relay.const(X), var("i", index)
    wide = relay.broadcast_to(relay.reshape(i, (1, 1)), (1, 3))
    row = relay.const(np.ones((1, 3), "float32"))
    return {
        "take": lambda: relay.take(x, i, axis=0, mode="fast"),
        "take of all": lambda: relay.take(relay.const(X[:, 0].copy()), i, mode="fast"),
        "gather": lambda: relay.gather(x, 0, wide),
        "gather_nd": lambda: relay.gather_nd(x, relay.reshape(i, (1, 1))),
        "adv_index": lambda: relay.adv_index([x, i]),
        "scatter_elements": lambda: relay.scatter_elements(x, wide, row, 0),
        "scatter_nd": lambda: relay.scatter_nd(x, relay.reshape(i, (1, 1)), row),
        "segment_sum": lambda: relay.segment_sum(row, i, num_segments=4),
        "sparse_to_dense": lambda: relay.sparse_to_dense(i, [4], relay.const(np.ones(1, "float32")), 0.0),
        "nll_loss": lambda: relay.nn.nll_loss(
            relay.const(X[:1, :].repeat(2, 1)[:, :4].copy()), i, relay.const(np.ones(4, "float32")), "sum"
        ),
        "crop_and_resize": lambda: relay.image.crop_and_resize(
            relay.const(np.ones((4, 1, 3, 3), "float32")),
            relay.const(np.float32([[0, 0, 1, 1]])),
            i,
            (2, 2),
            "NCHW",
        ),
    }[name]()


INDEXING = [
    "take", "take of all", "gather", "gather_nd", "adv_index", "scatter_elements", "scatter_nd", "segment_sum",
    "sparse_to_dense", "nll_loss", "crop_and_resize",
]  # fmt: skip
NOT_NEGATIVE = {"sparse_to_dense", "nll_loss", "crop_and_resize"}


@pytest.mark.parametrize("name", INDEXING)
def test_indices_outside_are_refused_and_never_touch_memory(name: str) -> None:
    index = np.zeros(1, "int64")
    low = 0 if name in NOT_NEGATIVE else -4
    expr = indexing(name, index)
    mod = tvm.IRModule.from_expr(expr)
    check = relay.create_executor("graph", mod).evaluate()
    with config.using(data_check="clamp"):
        clamp = relay.create_executor("graph", mod).evaluate()
        clamp(index)
    near = {int(v): clamp(np.int64([v])).numpy() for v in range(4)}
    for v in range(low, 4):
        np.testing.assert_array_equal(check(np.int64([v])).numpy(), near[v % 4])
    for v in FAR if low else [*FAR, -1]:
        with pytest.raises(OutOfBoundsError) as error:
            check(np.int64([v]))
        assert isinstance(error.value, (IndexError, TVMError))
        assert f"index {v} at position [0" in str(error.value)
        assert str(error.value).endswith(f"is out of bounds; the legal range is {low} to 3")
        held = clamp(np.int64([v])).numpy()
        if name.startswith(("scatter", "segment", "sparse")):  # what would be written outside is dropped
            assert held.sum() == (X.sum() if name.startswith("scatter") else 0)
        else:
            np.testing.assert_array_equal(held, near[3 if v > 3 else 0])


@pytest.mark.parametrize("kind", ["graph", "aot", "vm", "debug"])
def test_every_executor_raises_the_same(kind: str) -> None:
    index = np.array([[0, 3], [2, -9]], "int32")
    x, i = var("x", X), var("i", index)
    expr = relay.take(x, i, axis=0, mode="fast")
    with pytest.raises(OutOfBoundsError) as error:
        run(expr, kind, x=X, i=index)
    line = expr.span.line
    assert str(error.value) == (
        f"take at test_relay_data_check.py:{line}: index -9 at position [1, 1] is out of bounds; the legal range is "
        "-4 to 3"
    )


def test_modes_that_define_an_answer_are_not_checked() -> None:
    index = np.array([9, -9, 2**33 + 1], "int64")
    x, i = var("x", X), var("i", index)
    np.testing.assert_array_equal(run(relay.take(x, i, axis=0), x=X, i=index), X[[3, 0, 3]])
    np.testing.assert_array_equal(run(relay.take(x, i, axis=0, mode="wrap"), x=X, i=index), X[index % 4])


def test_narrow_and_unsigned_indices() -> None:
    for kind in ("int8", "uint8", "int16", "uint16", "uint32", "uint64"):
        info = np.iinfo(kind)
        big = np.arange(300, dtype="float32")
        index = np.array([info.min, info.max], kind)
        x, i = var("x", big), var("i", index)
        expr = relay.take(x, i, axis=0, mode="fast")
        if info.max < 300 and info.min >= -300:
            np.testing.assert_array_equal(run(expr, x=big, i=index), big[index.astype("int64")])
            continue
        with pytest.raises(OutOfBoundsError, match="the legal range is -300 to 299"):
            run(expr, x=big, i=index)


@pytest.mark.slow
def test_narrow_indices_have_room_for_the_size() -> None:
    """They are widened within the check, which stays part of the kernel that reads them."""
    from tilewright.relay.transform import CheckData

    big = np.arange(60000, dtype="float32").reshape(300, 200)
    for kind in ("int8", "int16", "uint8", "uint16", "uint32"):
        high = min(np.iinfo(kind).max, 199)
        index = np.array([[0, high], [high, 1]], kind)
        x, i, j = (
            var("x", big),
            relay.var("i", shape=(2, 2), dtype=kind),
            relay.var("j", shape=(2,), dtype=kind),
        )
        points, line, both = relay.gather_nd(x, i), relay.gather(x, 1, i), relay.adv_index([x, j, j])
        wide = index.astype("int64")
        np.testing.assert_array_equal(run(points, x=big, i=index), big[wide[0], wide[1]])
        np.testing.assert_array_equal(run(line, x=big, i=index), np.take_along_axis(big[:2], wide, 1))
        np.testing.assert_array_equal(run(both, x=big, j=index[0]), big[wide[0], wide[0]])
        checked = CheckData()(tvm.IRModule.from_expr(points))["main"]
        assert [e.op.name for e in post_order(checked) if isinstance(e, relay.Call)] == [
            "check_each",
            "gather_nd",
        ]
        if np.iinfo(kind).max > 300:
            index[1, 1] = 200
            with pytest.raises(
                OutOfBoundsError, match=r"index 200 at position \[1, 1\] .* range is -200 to 199"
            ):
                run(points, x=big, i=index)


def test_constants_are_checked_when_they_are_compiled() -> None:
    x = var("x", X)
    for index in (np.full((1, 3), 4), np.full((1, 3), -5)):
        with pytest.raises(OutOfBoundsError, match=r"index -?\d at position \[0, 0\] is out of bounds"):
            relay.build(tvm.IRModule.from_expr(relay.gather(x, 0, relay.const(index))), "llvm")
    sum_of_constants = relay.add(relay.const(np.full((4, 3), 6)), relay.const(1))
    of_constants = relay.add(x, relay.gather(relay.const(X), 0, sum_of_constants))
    with pytest.raises(OutOfBoundsError, match=r"gather at .*: index 7 at position"):
        relay.build(tvm.IRModule.from_expr(of_constants), "llvm")
    with pytest.raises(DivisionByZeroError, match=r"the divisor at position \[1\] is 0"):
        d = relay.var("d", shape=(2,), dtype="int32")
        relay.build(tvm.IRModule.from_expr(relay.floor_divide(d, relay.const(np.int32([1, 0])))), "llvm")


def test_lengths_and_ignored_classes() -> None:
    lengths = np.array([0, 1, 3, 2], "int64")
    x, n = var("x", X), var("n", lengths)
    expr = relay.reverse_sequence(x, n)
    wanted = np.stack([np.r_[row[:k][::-1], row[k:]] for row, k in zip(X, lengths, strict=True)])
    np.testing.assert_array_equal(run(expr, x=X, n=lengths), wanted)
    for bad in (4, 2**33, -1):
        lengths[2] = bad
        with pytest.raises(OutOfBoundsError, match=rf"length {bad} at position \[2\] .* range is 0 to 3"):
            run(expr, x=X, n=lengths)
        with config.using(data_check="clamp"):
            assert run(expr, x=X, n=lengths).max() == 11
    classes = np.array([0, -100, 2, 1], "int64")
    t = var("t", classes)
    loss = relay.nn.nll_loss(x, t, relay.const(np.ones(3, "float32")), "sum")
    assert run(loss, x=X, t=classes) == -(X[0, 0] + X[2, 2] + X[3, 1])
    classes[1] = -99
    with pytest.raises(OutOfBoundsError, match=r"index -99 at position \[1\]"):
        run(loss, x=X, t=classes)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8"])
def test_classes_of_every_place_are_checked_in_vectors(kind: str, reduction: str) -> None:
    rng = np.random.default_rng(0)
    for classes in (10, 1):
        scores = rng.standard_normal((67, classes)).astype("float32")
        good = rng.integers(0, classes, 67).astype(kind)
        good[::7] = 3 if kind == "uint8" else -100  # ignored
        ignored = int(good[0])
        weights = rng.random(classes).astype("float32")
        x, t, w = var("x", scores), var("t", good), var("w", weights)
        check, clamp = compiled(relay.nn.nll_loss(x, t, w, reduction, ignored))
        np.testing.assert_array_equal(
            check(scores, good, weights).numpy(), clamp(scores, good, weights).numpy()
        )
        for at in (1, 31, 32, 66):
            bad = good.copy()
            bad[at] = classes + (ignored == classes)
            with pytest.raises(
                OutOfBoundsError,
                match=rf"index {bad[at]} at position \[{at}\] .* range is 0 to {classes - 1}$",
            ):
                check(scores, bad, weights)


def compiled(expr: Any) -> tuple[Any, Any]:
    """The expression over its variables as functions: one that checks, and one that holds indices inside."""
    mod = tvm.IRModule.from_expr(expr)
    check, clamp = (relay.create_executor("graph", mod) for _ in range(2))
    with config.using(data_check="clamp"):
        held = clamp.evaluate()
        held(
            *(
                np.zeros(p.checked_type.shape, str(p.checked_type.dtype))
                for p in relay.infer_type(mod["main"]).params
            )
        )
    return check.evaluate(), held


def test_regions_name_images() -> None:
    rois = np.float32([[0, 0, 0, 2, 2], [1, 0, 0, 2, 2]])
    images = np.ones((2, 1, 4, 4), "float32")
    check, held = compiled(relay.vision.roi_align(var("x", images), var("r", rois), (2, 2), 1.0))
    assert check(images, rois).numpy().max() == 1
    for bad in (2, -1, np.nan, 1e30):
        wrong = rois.copy()
        wrong[1, 0] = bad
        with pytest.raises(OutOfBoundsError, match=r"at position \[1, 0\] is out of bounds"):
            check(images, wrong)
        assert held(images, wrong).numpy().max() == 1
    wrong = rois.copy()
    wrong[1, 1:] = np.nan  # a side that is not a number names no pixel
    held(images, wrong)


def test_a_sparse_matrix_with_places_outside() -> None:
    dense = np.ones((2, 3), "float32")
    values, columns, begins = np.float32([1, 2, 3]), np.int32([0, 2, 1]), np.int32([0, 2, 3])
    args = {"d": dense, "v": values, "c": columns, "b": begins}
    held = [var(n, v) for n, v in args.items()]
    expr = relay.nn.sparse_dense(held[0], tuple(held[1:]))
    check, clamp = compiled(expr)
    np.testing.assert_array_equal(check(*args.values()).numpy(), [[3, 3], [3, 3]])
    for name, at, bad in (("c", 1, 3), ("c", 1, -1), ("b", 1, 1000000), ("b", 0, -7)):
        wrong = {**args, name: args[name].copy()}
        wrong[name][at] = bad
        with pytest.raises(OutOfBoundsError, match=rf"{bad} at position \[{at}\]"):
            check(*wrong.values())
        assert np.isfinite(clamp(*wrong.values()).numpy()).all()


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("name", ["divide", "floor_divide", "trunc_divide", "mod", "floor_mod", "trunc_mod"])
def test_zeros_to_divide_by(name: str, kind: str) -> None:
    a, b = np.array([7, 9, 11, 13], kind), np.array([1, 2, 0, 3], kind)
    x, d = var("x", a), var("d", b)
    expr = getattr(relay, name)(x, d)
    with pytest.raises(
        DivisionByZeroError, match=rf"{name} at .*: the divisor at position \[2\] is 0"
    ) as error:
        run(expr, x=a, d=b)
    assert isinstance(error.value, ZeroDivisionError)
    with config.using(data_check="clamp"):
        got = run(expr, x=a, d=b)
    assert got[2] == 0
    good = np.maximum(b, 1)
    wanted = a // good if name.endswith("divide") else a % good
    np.testing.assert_array_equal(run(expr, x=a, d=good), wanted)


def test_the_least_number_by_minus_one_wraps_around() -> None:
    a, b = np.int32([-(2**31)] * 2), np.int32([-1, 1])
    x, d = var("x", a), var("d", b)
    np.testing.assert_array_equal(run(relay.trunc_divide(x, d), x=a, d=b), a)
    np.testing.assert_array_equal(run(relay.floor_mod(x, d), x=a, d=b), [0, 0])


def test_a_tensor_of_indices_is_checked_once() -> None:
    from tilewright.relay.transform import CheckData

    x, y = (relay.var(n, shape=(4, 3)) for n in "xy")
    i = relay.var("i", shape=(2, 3), dtype="int64")
    both = relay.add(relay.gather(x, 0, i), relay.gather(y, 0, i))
    checked = CheckData()(tvm.IRModule.from_expr(both))["main"]
    calls = [e.op.name for e in post_order(checked) if isinstance(e, relay.Call)]
    assert sorted(calls) == ["add", "check_each", "gather", "gather"]
    with tvm.transform.PassContext(config={"tilewright.data_check": "clamp"}):
        plain = CheckData()(tvm.IRModule.from_expr(both))["main"]
    assert not any(e.op.name.startswith("check") for e in post_order(plain) if isinstance(e, relay.Call))
    with (
        pytest.raises(TVMError, match="takes 'check' or 'clamp', not 'off'"),
        tvm.transform.PassContext(config={"tilewright.data_check": "off"}),
    ):
        CheckData()(tvm.IRModule.from_expr(both))


def test_many_indices_in_parallel_loops() -> None:
    """The error of one thread is the error of the call, and the next call works."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((300, 700)).astype("float32")
    index = rng.integers(-300, 300, (300, 700))
    x, i, u = var("x", data), var("i", index), var("u", data)
    fused = relay.nn.relu(relay.gather(x, 0, relay.add(i, relay.const(0, "int64"))))
    written = relay.scatter_elements(x, i, u, 0)
    for expr, inputs in ((fused, {"x": data}), (written, {"x": data, "u": data})):
        mod = tvm.IRModule.from_expr(expr)
        f = relay.create_executor("graph", mod).evaluate()
        order = [p.name_hint for p in mod["main"].params]

        def call(places: Any, f: Any = f, order: Any = order, inputs: Any = inputs) -> Any:
            return f(*({**inputs, "i": places}[n] for n in order)).numpy()

        good = call(index)
        bad = index.copy()
        bad[177, 399] = 300
        with pytest.raises(OutOfBoundsError, match=r"index 300 at position \[177, 399\]"):
            call(bad)
        np.testing.assert_array_equal(call(index), good)
    np.testing.assert_array_equal(
        run(fused, x=data, i=index), np.maximum(np.take_along_axis(data, index % 300, 0), 0)
    )


def test_sizes_that_only_the_run_tells() -> None:
    x, i = relay.var("x", shape=(relay.Any(), 3)), relay.var("i", shape=(relay.Any(),), dtype="int64")
    f = relay.create_executor("vm", tvm.IRModule.from_expr(relay.take(x, i, axis=0, mode="fast"))).evaluate()
    for rows in (4, 2):
        part = X[:rows].copy()
        np.testing.assert_array_equal(f(part, np.int64([-1, 1])).numpy(), part[[-1, 1]])
        with pytest.raises(
            OutOfBoundsError, match=rf"index {rows} at position \[2\] .* range is -{rows} to {rows - 1}"
        ):
            f(part, np.int64([0, 1, rows]))
    with pytest.raises(OutOfBoundsError, match="index 0"):
        f(X[:0].copy(), np.int64([0]))
    with config.using(data_check="clamp"):
        f = relay.create_executor(
            "vm", tvm.IRModule.from_expr(relay.take(x, i, axis=0, mode="fast"))
        ).evaluate()
        np.testing.assert_array_equal(f(X, np.int64([9])).numpy(), X[3:])
        assert f(X[:0].copy(), np.int64([0])).numpy().tolist() == [[0, 0, 0]]


def test_an_exported_library_tells_it_by_its_return_code(tmp_path: Path) -> None:
    index = np.zeros(2, "int64")
    i = var("i", index)
    lib = relay.build(tvm.IRModule.from_expr(relay.take(relay.const(X), i, axis=0, mode="fast")), "llvm")
    path = tmp_path / "model.so"
    lib.export_library(str(path))
    program = f"""
import ctypes
lib = ctypes.CDLL({str(path)!r})
lib.__tw_last_error.restype = ctypes.c_char_p
i, out = (ctypes.c_int64 * 2)(1, 9), (ctypes.c_float * 6)()
run = lib.tvmgen_default
print(run(i, out), lib.__tw_last_error().decode())
i[1] = -1
print(run(i, out), list(out))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first, second = said.splitlines()
    assert first.startswith("5 take at test_relay_data_check.py:")
    assert first.endswith("index 9 at position [1] is out of bounds; the legal range is -4 to 3")
    assert second == "0 [3.0, 4.0, 5.0, 9.0, 10.0, 11.0]"


def test_a_scatter_checks_its_indices_as_it_reads_them() -> None:
    from tilewright.relay.transform import CheckData

    x, i, u = var("x", X), relay.var("i", shape=(2, 3), dtype="int64"), relay.var("u", shape=(2, 3))
    points = relay.var("p", shape=(1, 2), dtype="int64")
    both = relay.scatter_nd(relay.scatter_elements(x, i, u), points, u, "add")
    checked = CheckData()(tvm.IRModule.from_expr(both))["main"]
    calls = [e for e in post_order(checked) if isinstance(e, relay.Call)]
    assert [c.op.name for c in calls] == ["scatter_elements", "scatter_nd"]
    assert all(c.attrs.node.startswith(f"{c.op.name} at ") for c in calls)
    assert "node" not in str(both)


@pytest.mark.slow
def test_operators_that_write_by_data_check_as_they_read() -> None:
    """Segments, points of a sparse tensor and permutations: no pass over the indices comes before."""
    from tilewright.relay.transform import CheckData

    ids, rows = relay.var("i", shape=(3,), dtype="int64"), relay.const(X[:3])
    one = relay.const(np.ones(3, "float32"))
    points = relay.var("i", shape=(3, 2), dtype="int64")
    cases = [
        (relay.segment_sum(rows, ids, num_segments=4), [0, 0, 3], 4, "[2]", -4),
        (relay.segment_sum(rows, ids, num_segments=1), [0, 0, 0], 1, "[2]", -1),
        (relay.sparse_to_dense(ids, [4], one, 0.0), [0, 1, 3], 4, "[2]", 0),
        (relay.sparse_to_dense(ids, [1], one, 0.0), [0, 0, 0], 1, "[2]", 0),
        (relay.sparse_to_dense(points, [3, 4], one, 0.0), [[0, 0], [1, 2], [2, 3]], 4, "[2, 1]", 0),
        (relay.invert_permutation(ids), [2, 0, 1], 3, "[2]", 0),
    ]
    for expr, good, size, where, low in cases:
        checked = CheckData()(tvm.IRModule.from_expr(expr))["main"]
        calls = [e for e in post_order(checked) if isinstance(e, relay.Call)]
        assert [c.op.name for c in calls] == [expr.op.name] and calls[0].attrs.node
        run(expr, i=np.int64(good))
        for value in (size, low - 1, 2**33, -(2**63)):
            bad = np.int64(good)
            bad.reshape(-1)[-1] = value
            with pytest.raises(OutOfBoundsError) as error:
                run(expr, i=bad)
            wanted = f": index {value} at position {where} is out of bounds; the legal range is {low} to {size - 1}"
            assert str(error.value).endswith(wanted)
    single = relay.var("i", shape=(), dtype="int64")
    with pytest.raises(OutOfBoundsError, match="index 4 is out of bounds; the legal range is 0 to 3"):
        run(relay.sparse_to_dense(single, [4], relay.const(1.0), 0.0), i=np.int64(4))


def test_scatters_into_tensors_of_any_size() -> None:
    row = np.ones((1, 3), "float32")
    for kind in ("int8", "int32", "int64", "uint64"):
        x, i = relay.var("x", shape=(relay.Any(), 3)), relay.var("i", shape=(1, 3), dtype=kind)
        f = relay.create_executor(
            "vm", tvm.IRModule.from_expr(relay.scatter_elements(x, i, relay.const(row), 0))
        ).evaluate()
        for rows in (4, 1):
            wanted = X[:rows].copy()
            wanted[rows - 1] = 1
            np.testing.assert_array_equal(f(X[:rows].copy(), np.full((1, 3), rows - 1, kind)).numpy(), wanted)
            with pytest.raises(
                OutOfBoundsError, match=rf"index {rows} at position \[0, 0\] .* to {rows - 1}$"
            ):
                f(X[:rows].copy(), np.full((1, 3), rows, kind))
        with pytest.raises(OutOfBoundsError, match="index 0 at position"):
            f(X[:0].copy(), np.zeros((1, 3), kind))
    for size in (1, 2):  # of known sizes
        i = relay.var("i", shape=(1, 3), dtype="int8")
        made = relay.scatter_elements(relay.const(X[:size]), i, relay.const(row), 0)
        with pytest.raises(OutOfBoundsError, match=rf"index {size} at position \[0, 2\]"):
            run(made, i=np.int8([[0, -1, size]]))


@pytest.mark.parametrize("mode", ["check", "clamp"])
def test_an_index_is_held_inside_also_where_its_element_is_not_used(mode: str) -> None:
    """Both sides of `where` are computed: what the condition says of the index does not count when it is read."""
    x, i = var("x", X[0]), relay.var("i", shape=(3,), dtype="int64")
    zero = relay.const(np.zeros(3, "float32"))
    expr = relay.where(relay.less(i, relay.const(0, "int64")), zero, relay.take(x, i, mode="fast"))
    with config.using(data_check=mode):
        f = relay.create_executor("graph", tvm.IRModule.from_expr(expr)).evaluate()
        np.testing.assert_array_equal(f(np.int64([-3, 1, 2]), X[0]).numpy(), [0, 1, 2])
        for far in (-4, -(10**12)):
            if mode == "clamp":
                np.testing.assert_array_equal(f(np.int64([far, 1, 2]), X[0]).numpy(), [0, 1, 2])
                continue
            with pytest.raises(OutOfBoundsError, match=rf"index {far} at position \[0\]"):
                f(np.int64([far, 1, 2]), X[0])


# ---------------------------------------------------------------------------- imported models
def test_an_onnx_model_names_its_node() -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    kinds = {"x": (1, [4, 3]), "i": (7, [2, 3]), "k": (7, [2]), "d": (6, [4]), "e": (6, [4])}

    def model(op: str, inputs: list[str], shape: list[int], elem: int = 1, **attrs: Any) -> Any:
        node = h.make_node(op, inputs, ["y"], name=f"the_{op}", **attrs)
        given = [h.make_tensor_value_info(n, *kinds[n]) for n in inputs]
        graph = h.make_graph([node], "g", given, [h.make_tensor_value_info("y", elem, shape)])
        made = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])
        return relay.create_executor("graph", relay.frontend.from_onnx(made)[0]).evaluate()

    gather = model("Gather", ["x", "k"], [2, 3])
    np.testing.assert_array_equal(gather(X, np.int64([-4, 3])).numpy(), X[[-4, 3]])
    for bad in (4, -5, 2**33):
        with pytest.raises(
            OutOfBoundsError, match=rf"^node Gather 'the_Gather': index {bad} at position \[1\].*-4 to 3"
        ):
            gather(X, np.int64([0, bad]))
    elements = model("GatherElements", ["x", "i"], [2, 3])
    with pytest.raises(
        OutOfBoundsError, match=r"^node GatherElements .*: index 8589934592 at position \[0, 1\]"
    ):
        elements(X, np.int64([[0, 2**33, 0], [0, 0, 0]]))
    for op in ("Div", "Mod"):
        divided = model(op, ["d", "e"], [4], 6)
        with pytest.raises(
            DivisionByZeroError, match=rf"^node {op} 'the_{op}': the divisor at position \[1\] is 0"
        ):
            divided(np.int32([7, 7, 7, 7]), np.int32([1, 0, 2, -1]))
        assert divided(np.int32([7, -7, -(2**31), 7]), np.int32([1, 2, -1, 3])).numpy()[2] in (-(2**31), 0)


@pytest.mark.slow
def test_a_torch_model_names_its_node() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(4, 3)

        def forward(self, ids: Any, at: Any) -> Any:
            return self.table(ids).gather(0, at)

    ids, at = torch.tensor([0, 3]), torch.tensor([[0, 1, 1]])
    net = Net().eval()
    mod, params = relay.frontend.from_pytorch(
        torch.export.export(net, (ids, at)), [("ids", (2,)), ("at", (1, 3))]
    )
    f = relay.create_executor("graph", mod, params=params).evaluate()
    np.testing.assert_allclose(f(ids.numpy(), at.numpy()).numpy(), net(ids, at).detach().numpy())
    for bad in (4, 2**33):
        with pytest.raises(OutOfBoundsError, match=rf"embedding.*: index {bad} at position \[1\]"):
            f(np.int64([0, bad]), at.numpy())
    with pytest.raises(OutOfBoundsError, match=r"gather.*: index 8589934592 at position \[0, 2\]"):
        f(ids.numpy(), np.int64([[0, 1, 2**33]]))


@pytest.mark.parametrize(
    "name", ["embedding", "index_select", "gather", "scatter", "index_add", "index_fill", "take"]
)
def test_torch_counts_from_the_end_where_it_does(name: str) -> None:
    """Negative indices are refused where PyTorch refuses them."""
    torch = pytest.importorskip("torch")
    work: dict[str, Any] = {
        "embedding": lambda x, i: torch.nn.functional.embedding(i[0], x),
        "index_select": lambda x, i: x.index_select(0, i[0]),
        "gather": lambda x, i: x.gather(0, i),
        "scatter": lambda x, i: x.scatter(0, i, 9.0),
        "index_add": lambda x, i: x.index_add(0, i[0], x[:3]),
        "index_fill": lambda x, i: x.index_fill(0, i[0], 9.0),
        "take": lambda x, i: x.take(i),
    }

    class Net(torch.nn.Module):
        def forward(self, x: Any, i: Any) -> Any:
            return work[name](x, i)

    x, good, bad = torch.rand(4, 3), torch.tensor([[0, 3, 2]]), torch.tensor([[0, -1, 2]])
    mod, params = relay.frontend.from_pytorch(torch.export.export(Net(), (x, good)))
    f = relay.create_executor("graph", mod, params=params).evaluate()
    np.testing.assert_allclose(f(x.numpy(), good.numpy()).numpy(), work[name](x, good).numpy())
    try:
        wanted = work[name](x, bad).numpy()
    except (IndexError, RuntimeError):
        with pytest.raises(OutOfBoundsError, match=r"index -1 at position .* the legal range is 0 to 3"):
            f(x.numpy(), bad.numpy())
    else:
        np.testing.assert_allclose(f(x.numpy(), bad.numpy()).numpy(), wanted)


# ---------------------------------------------------------------------------- kernels of GPUs
def on_gpu(expr: Any) -> Any:
    """The expression over its variables as a function on an OpenCL device."""
    mod = tvm.IRModule.from_expr(expr)
    return relay.create_executor("graph", mod, device=tvm.opencl(0), target="opencl").evaluate()


@pytest.mark.needs("opencl")
@pytest.mark.filterwarnings("ignore:.*is done by the host")
@pytest.mark.parametrize("name", INDEXING)
def test_a_gpu_reports_indices_outside_with_the_text_of_the_cpu(name: str) -> None:
    expr = indexing(name, np.zeros(1, "int64"))
    here, there = relay.create_executor("graph", tvm.IRModule.from_expr(expr)).evaluate(), on_gpu(expr)
    low = 0 if name in NOT_NEGATIVE else -4
    for v in (low, 3, 4, 1):
        index = np.int64([v])
        if v < 4:
            np.testing.assert_array_equal(there(index).numpy(), here(index).numpy())
            continue
        for bad in (4, -5, 2**33, -(2**63)):
            texts = []
            for f in (here, there):
                with pytest.raises(OutOfBoundsError) as error:
                    f(np.int64([bad])).numpy()
                texts.append(re.sub(r"position \[0, \d\]", "", str(error.value)))  # several columns are bad
            assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.needs("opencl")
def test_a_gpu_reports_lengths_ignored_classes_columns_and_narrow_indices() -> None:
    x, n = var("x", X), relay.var("n", shape=(4,), dtype="int64")
    f = on_gpu(relay.reverse_sequence(x, n))
    assert f(X, np.int64([0, 1, 3, 2])).numpy()[2].tolist() == [8, 7, 6]
    with pytest.raises(OutOfBoundsError, match=r"length 4 at position \[2\] .* range is 0 to 3"):
        f(X, np.int64([0, 1, 4, 2])).numpy()
    loss = on_gpu(
        relay.nn.nll_loss(
            x, relay.var("t", shape=(4,), dtype="int64"), relay.const(np.ones(3, "float32")), "sum"
        )
    )
    assert loss(X, np.int64([0, -100, 2, 1])).numpy() == -(X[0, 0] + X[2, 2] + X[3, 1])
    with pytest.raises(OutOfBoundsError, match=r"index -99 at position \[1\]"):
        loss(X, np.int64([0, -99, 2, 1])).numpy()
    narrow = on_gpu(relay.take(x, relay.var("i", shape=(2,), dtype="uint8"), axis=0, mode="fast"))
    with pytest.raises(OutOfBoundsError, match=r"index 255 at position \[1\] .* range is -4 to 3"):
        narrow(X, np.uint8([3, 255])).numpy()
    single = on_gpu(
        relay.take(relay.const(X[:1]), relay.var("i", shape=(2,), dtype="int64"), axis=0, mode="fast")
    )
    with pytest.raises(OutOfBoundsError, match=r"index 1 at position \[1\] .* range is -1 to 0"):
        single(np.int64([-1, 1])).numpy()
    images, rois = np.ones((2, 1, 4, 4), "float32"), np.float32([[0, 0, 0, 2, 2], [1, 0, 0, 2, 2]])
    regions = on_gpu(relay.vision.roi_align(var("x", images), var("r", rois), (2, 2), 1.0))
    assert regions(images, rois).numpy().max() == 1
    rois[1, 0] = 2
    with pytest.raises(OutOfBoundsError, match=r"index 2 at position \[1, 0\] is out of bounds"):
        regions(images, rois).numpy()


@pytest.mark.needs("opencl")
@pytest.mark.parametrize("name", ["floor_divide", "trunc_mod"])
def test_a_gpu_reports_zeros_to_divide_by(name: str) -> None:
    a, b = np.int32([7, 9, 11, 13]), np.int32([1, 2, 0, 3])
    f = on_gpu(getattr(relay, name)(var("x", a), var("d", b)))
    with pytest.raises(DivisionByZeroError, match=rf"{name} at .*: the divisor at position \[2\] is 0"):
        f(a, b).numpy()
    assert f(a, np.maximum(b, 1)).numpy().shape == (4,)


@pytest.mark.needs("opencl")
def test_a_gpu_holds_indices_inside_where_they_are_not_checked() -> None:
    index = np.int64([0, 9, -9, 2**33])
    x, i = var("x", X), var("i", index)
    with config.using(data_check="clamp"):
        f = on_gpu(relay.take(x, i, axis=0, mode="fast"))
        np.testing.assert_array_equal(f(X, index).numpy(), X[[0, 3, 0, 3]])


@pytest.mark.needs("opencl")
def test_a_report_is_raised_by_whoever_waits_and_for_its_own_executor() -> None:
    dev, good, bad = tvm.opencl(0), np.int64([1, 2]), np.int64([1, 7])
    x, i = var("x", X), var("i", good)
    lib = relay.build(tvm.IRModule.from_expr(relay.take(x, i, axis=0, mode="fast")), "opencl")
    one, two = (lib["default"](dev) for _ in range(2))
    for executor, index in ((one, bad), (two, good)):
        executor.set_input("x", X)
        executor.set_input("i", index)
        executor.run()  # waits for nothing
    with pytest.raises(OutOfBoundsError, match="index 7"):
        dev.sync()
    dev.sync()  # it was told
    np.testing.assert_array_equal(two.get_output(0).numpy(), X[good])

    said: list[Any] = []

    def in_another_thread(work: Any) -> None:
        def run() -> None:
            try:
                said.append(work())
            except OutOfBoundsError as error:
                said.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    one.run()
    in_another_thread(lambda: two.get_output(0).numpy())
    np.testing.assert_array_equal(said.pop(), X[good])  # the other's data were good
    in_another_thread(lambda: one.get_output(0).numpy())
    assert "index 7 at position [1]" in str(said.pop())
    one.set_input("i", good)
    one.run()
    np.testing.assert_array_equal(one.get_output(0).numpy(), X[good])


@pytest.mark.needs("opencl")
def test_an_exported_model_of_a_gpu_reports(tmp_path: Path) -> None:
    x, i = var("x", X), relay.var("i", shape=(2,), dtype="int64")
    lib = relay.build(tvm.IRModule.from_expr(relay.take(x, i, axis=0, mode="fast")), "opencl")
    lib.export_library(str(tmp_path / "model.so"))
    executor = tvm.runtime.load_module(str(tmp_path / "model.so"))["default"](tvm.opencl(0))
    executor.set_input("x", X)
    executor.set_input("i", np.int64([0, -5]))
    executor.run()
    with pytest.raises(OutOfBoundsError, match=r"^take at .*: index -5 at position \[1\]"):
        executor.get_output(0).numpy()


@pytest.mark.needs("opencl")
def test_a_kernel_that_was_built_on_its_own_reports() -> None:
    A, I = te.placeholder((8,), "float32", "A"), te.placeholder((4,), "int64", "I")
    inside = topi.checks.check_each(I, "index", [8], "rows")
    B = te.compute((4,), lambda i: A[tvm.tir.Cast("int32", inside[i])], "B")
    s = te.create_schedule(B.op)
    s[inside].compute_inline()
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    f = tvm.build(s, [A, I, B], target="opencl")
    dev, values = tvm.opencl(0), np.arange(8, dtype="float32")
    a, out = tvm.nd.array(values, dev), tvm.nd.empty((4,), "float32", dev)
    for index in ([0, -1, 7, 3], [0, 8, 1, 2], [1, 1, 1, 1]):
        f(a, tvm.nd.array(np.int64(index), dev), out)
        if 8 in index:
            with pytest.raises(OutOfBoundsError, match=r"^rows: index 8 at position \[1\]"):
                out.numpy()
        else:
            np.testing.assert_array_equal(out.numpy(), values[index])
