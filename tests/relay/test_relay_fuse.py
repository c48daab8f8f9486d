"""FuseOps and DefuseOps: which operators become one kernel."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import relay
from tilewright.relay.testing import run_infer_type, run_opt_pass
from tilewright.relay.transform.fuse_ops import is_primitive

SHAPE = (1, 8, 6, 6)


def var(name: str, shape: tuple[int, ...] = SHAPE) -> relay.Var:
    return relay.var(name, shape=shape)


def primitive(params: list[relay.Var], body: Any) -> relay.Function:
    return relay.Function(params, body, attrs={"Primitive": 1})


def fuse(func: relay.Function, level: int = 2) -> relay.Function:
    return run_opt_pass(func, relay.transform.FuseOps(level))


def check(before: relay.Function, expected: relay.Function, level: int = 2) -> None:
    tvm.ir.assert_structural_equal(fuse(before, level), run_infer_type(expected))


def groups(func: relay.Function) -> list[list[str]]:
    """The operators of each kernel, in the order of the program."""
    out = []
    for e in relay.analysis.post_order(func.body):
        if isinstance(e, relay.Call) and is_primitive(e.op):
            ops = [c.op.name for c in relay.analysis.post_order(e.op.body) if isinstance(c, relay.Call)]
            out.append(ops)
    return out


def test_a_chain_is_one_kernel() -> None:
    x = var("x")
    before = relay.Function([x], relay.nn.relu(relay.exp(x + relay.const(1.0))))
    p, y = var("p0"), var("x")
    kernel = primitive([p], relay.nn.relu(relay.exp(p + relay.const(1.0))))
    check(before, relay.Function([y], relay.Call(kernel, [y])))


def test_a_convolution_takes_what_is_elementwise_after_it() -> None:
    x, w, b = var("x"), var("w", (8, 8, 3, 3)), var("b", (8,))
    conv = relay.nn.conv2d(x, w, padding=(1, 1))
    before = relay.Function([x, w, b], relay.nn.relu(relay.nn.bias_add(conv, b)))
    p, q, r = var("p0"), var("p1", (8, 8, 3, 3)), var("p2", (8,))
    inner = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(p, q, padding=(1, 1)), r))
    y, v, c = var("x"), var("w", (8, 8, 3, 3)), var("b", (8,))
    check(before, relay.Function([y, v, c], relay.Call(primitive([p, q, r], inner), [y, v, c])))


def test_what_is_before_a_convolution_stays_outside() -> None:
    x, w = var("x"), var("w", (8, 8, 1, 1))
    made = fuse(relay.Function([x, w], relay.nn.conv2d(relay.exp(x), w)))
    assert groups(made) == [["exp"], ["nn.conv2d"]]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_product_with_one_row_reads_a_matrix_where_it_is(rows: int) -> None:
    x, keys = var("x", (4, rows, 8)), var("keys", (5, 4, 8))
    product = relay.nn.batch_matmul(x, relay.reshape(relay.transpose(keys, (1, 0, 2)), (4, 5, 8)))
    apart = groups(fuse(relay.Function([x, keys], relay.nn.relu(product))))
    if rows == 1:  # as attention in decoding: each key is read once
        assert apart == [["transpose", "reshape", "nn.batch_matmul", "nn.relu"]]
    else:  # each is read for every row: it is transposed once
        assert apart == [["transpose", "reshape"], ["nn.batch_matmul", "nn.relu"]]


def test_a_matrix_with_another_use_is_not_computed_in_a_product() -> None:
    x, keys = var("x", (4, 1, 8)), var("keys", (5, 4, 8))
    moved = relay.transpose(keys, (1, 0, 2))
    body = relay.Tuple([relay.nn.batch_matmul(x, moved), moved])
    assert groups(fuse(relay.Function([x, keys], body))) == [["transpose"], ["nn.batch_matmul"]]


def test_a_diamond_is_one_kernel() -> None:
    x = var("x")
    a = relay.exp(x)
    before = relay.Function([x], (a + relay.const(1.0)) * relay.tanh(a))
    made = fuse(before)
    assert groups(made) == [["exp", "add", "tanh", "multiply"]]
    (kernel,) = [e for e in relay.analysis.post_order(made) if is_primitive(e)]
    assert len(kernel.params) == 1


def test_a_diamond_around_a_convolution_is_not() -> None:
    x, w = var("x"), var("w", (8, 8, 1, 1))
    a = relay.exp(x)
    made = fuse(relay.Function([x, w], relay.nn.conv2d(a, w) + a))
    assert groups(made) == [["exp"], ["nn.conv2d", "add"]]


def test_one_convolution_in_a_kernel() -> None:
    x, w = var("x"), var("w", (8, 8, 1, 1))
    both = relay.nn.conv2d(x, w) + relay.nn.conv2d(relay.exp(x), w)
    made = groups(fuse(relay.Function([x, w], relay.nn.relu(both))))
    assert sorted(made) == [["exp"], ["nn.conv2d"], ["nn.conv2d", "add", "nn.relu"]]


def test_fields_of_a_tuple_go_into_the_concatenation() -> None:
    x, y = var("x"), var("y")
    before = relay.Function([x, y], relay.nn.relu(relay.concatenate([relay.exp(x), relay.tanh(y)], axis=1)))
    p, q = var("p0"), var("p1")
    inner = relay.nn.relu(relay.concatenate([relay.exp(p), relay.tanh(q)], axis=1))
    a, b = var("x"), var("y")
    check(before, relay.Function([a, b], relay.Call(primitive([p, q], inner), [a, b])))


def test_a_tuple_that_is_a_result_keeps_its_fields_apart() -> None:
    x = var("x")
    made = fuse(relay.Function([x], relay.Tuple([relay.exp(x), relay.tanh(x)])))
    assert isinstance(made.body, relay.Tuple) and groups(made) == [["exp"], ["tanh"]]


def test_parts_of_a_split() -> None:
    x = var("x")
    parts = relay.split(relay.exp(x), 2, axis=1)
    made = fuse(relay.Function([x], relay.nn.relu(parts[0]) + parts[1]))
    assert groups(made) == [["exp", "split", "nn.relu", "add"]]
    apart = relay.Tuple([relay.nn.relu(parts[0]), relay.nn.softmax(parts[1])])
    kept = fuse(relay.Function([x], apart))
    assert groups(kept) == [["exp", "split"], ["nn.relu"], ["nn.softmax"]]


def test_a_reduction_takes_what_is_before_it_and_nothing_after() -> None:
    x = var("x")
    made = fuse(relay.Function([x], relay.sqrt(relay.sum(relay.exp(x), axis=1))))
    assert groups(made) == [["exp", "sum"], ["sqrt"]]


def test_opaque_operators_stand_alone() -> None:
    x = var("x", (4, 10))
    made = fuse(relay.Function([x], relay.exp(relay.nn.softmax(relay.exp(x)))))
    assert groups(made) == [["exp"], ["nn.softmax"], ["exp"]]


def test_a_result_that_is_used_stays_a_result() -> None:
    x = var("x")
    a = relay.exp(x)
    made = fuse(relay.Function([x], relay.Tuple([a, relay.nn.relu(a)])))
    assert groups(made) == [["exp"], ["nn.relu"]]


def test_level_0_fuses_nothing() -> None:
    x = var("x")
    func = relay.Function([x], relay.nn.relu(relay.exp(x)))
    assert groups(fuse(func, 0)) == [["exp"], ["nn.relu"]]
    with tvm.transform.PassContext(opt_level=0):
        mod = relay.transform.FuseOps()(run_infer_type(tvm.IRModule.from_expr(func)))
    assert groups(mod["main"]) == [["exp"], ["nn.relu"]]


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_depth_limit(depth: int) -> None:
    x = y = var("x")
    for _ in range(10):
        y = relay.exp(y)
    with tvm.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": depth}):
        mod = relay.transform.FuseOps()(run_infer_type(tvm.IRModule.from_expr(relay.Function([x], y))))
    sizes = [len(g) for g in groups(mod["main"])]
    assert max(sizes) == depth and sum(sizes) == 10


def test_numbers_are_in_the_kernel_and_arrays_are_arguments() -> None:
    x = var("x")
    w = relay.const(np.ones(SHAPE, "float32"))
    made = fuse(relay.Function([x], x * w + relay.const(2.0)))
    assert isinstance(made.body, relay.Call) and made.body.args[1] is w
    assert len(made.body.op.params) == 2


def test_one_argument_for_one_value() -> None:
    x, y = var("x"), var("y")
    made = fuse(relay.Function([x, y], (x + y) * x - y))
    assert len(made.body.op.params) == 2


def test_fused_already_is_left_as_it_is() -> None:
    x = var("x")
    mod = run_infer_type(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.exp(x)))))
    once = relay.transform.FuseOps(2)(mod)
    assert relay.transform.FuseOps(2)(once) is once
    nothing = run_infer_type(tvm.IRModule.from_expr(relay.Function([x], x)))
    assert relay.transform.FuseOps(2)(nothing) is nothing


def test_branches_and_lets() -> None:
    x, c = var("x"), relay.var("c", shape=(), dtype="bool")
    v = relay.var("v")
    body = relay.Let(v, relay.exp(relay.exp(x)), relay.If(c, relay.nn.relu(relay.tanh(v)), relay.sqrt(v)))
    made = fuse(relay.Function([x, c], body))
    assert sorted(groups(made)) == [["exp", "exp"], ["sqrt"], ["tanh", "nn.relu"]]


@pytest.mark.slow
def test_a_long_chain_takes_time_in_proportion() -> None:
    def seconds(length: int) -> float:
        x = y = var("x", (4,))
        for _ in range(length):
            y = relay.nn.relu(y)
        mod = run_infer_type(tvm.IRModule.from_expr(relay.Function([x], y)))
        start = time.process_time()
        made = relay.transform.FuseOps(2)(mod)
        spent = time.process_time() - start
        assert sum(map(len, groups(made["main"]))) == length
        return spent

    assert seconds(20000) < 40 * max(seconds(2000), 0.01)


@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.data())
def test_defuse_gives_the_program_back(data: st.DataObject) -> None:
    inputs = [var("a"), var("b")]
    weight = var("w", (8, 8, 1, 1))
    values: list[Any] = list(inputs)
    for _ in range(data.draw(st.integers(1, 12))):
        pick = data.draw(st.sampled_from(["exp", "add", "conv", "cat", "flip"]))
        x, y = (values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2))
        if pick == "exp":
            values.append(relay.exp(x))
        elif pick == "add":
            values.append(x + y)
        elif pick == "conv":
            values.append(relay.nn.conv2d(x, weight))
        elif pick == "cat":
            both = relay.split(relay.concatenate([x, y], axis=1), 2, axis=1)
            values += [both[0], both[1]]
        else:
            values.append(relay.transpose(relay.transpose(x, (0, 1, 3, 2)), (0, 1, 3, 2)))
    count = data.draw(st.integers(1, 2))
    body = values[-1] if count == 1 else relay.Tuple(values[-2:])
    mod = run_infer_type(tvm.IRModule.from_expr(relay.Function([*inputs, weight], body)))
    fused = relay.transform.FuseOps(2)(mod)
    for e in relay.analysis.post_order(fused["main"].body):
        if isinstance(e, relay.Call) and not is_primitive(e.op):
            assert any(e in relay.analysis.post_order(f) for f in _kernels(fused))
    tvm.ir.assert_structural_equal(relay.transform.DefuseOps()(fused), mod)


def _kernels(mod: tvm.IRModule) -> list[relay.Function]:
    return [e for e in relay.analysis.post_order(mod["main"]) if is_primitive(e)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "int16", "uint8"])
def test_indices_of_any_type_read_what_is_computed_in_the_same_kernel(dtype: str) -> None:
    """The places in a joined tensor are compared with its parts' sizes, which are int32."""
    x, i = var("x", (5, 4)), relay.var("i", shape=(3,), dtype=dtype)
    joined = relay.concatenate([x, relay.exp(x)], axis=0)
    flat = relay.reshape(joined, (40,))
    results = [
        relay.take(joined, i, axis=0),
        relay.take(flat, i, mode="wrap"),
        relay.take(flat, i, mode="fast"),
    ]
    results += [relay.gather_nd(joined, relay.expand_dims(i, 0)), relay.gather(flat, 0, i)]
    array, places = np.linspace(-1, 1, 20, dtype="float32").reshape(5, 4), np.array([9, 0, 4], dtype)
    for y in results:
        run = relay.create_executor("graph", tvm.IRModule.from_expr(relay.Function([x, i], y))).evaluate()
        both = np.concatenate([array, np.exp(array)])
        expected = both if len(run(array, places).shape) == 2 else both.reshape(-1)
        np.testing.assert_allclose(run(array, places).numpy(), expected[places], rtol=1e-6)


@pytest.mark.slow
def test_long_rearrangements_are_parted() -> None:
    """The place that is read at the end of twenty transposed reshapes would be a term of a million parts."""
    x = var("x", (4, 4))
    y: Any = x
    for i in range(20):
        y = relay.transpose(relay.reshape(y, (2, 8) if i % 2 else (4, 4)))
    before = relay.Function([x], y)
    counts = [ops.count("reshape") for ops in groups(fuse(before))]
    assert sum(counts) == 20 and max(counts) <= 8 and len(counts) == 3
    run = relay.create_executor("graph", tvm.IRModule.from_expr(before)).evaluate()
    array = np.arange(16, dtype="float32").reshape(4, 4)
    expected = array
    for i in range(20):
        expected = expected.reshape((2, 8) if i % 2 else (4, 4)).T
    np.testing.assert_array_equal(run(array).numpy(), expected)


def test_a_small_tensor_is_computed_once_beside_a_product() -> None:
    """exp of a vector, spread over the rows of a product, would be computed for each row."""
    x, w, b, y = var("x", (8, 16)), var("w", (4, 16)), var("b", (4,)), var("y", (8, 4))
    product = relay.nn.dense(x, w)
    for both in ((product, relay.exp(b)), (relay.exp(b), product)):
        made = relay.Function([x, w, b], relay.nn.relu(relay.add(*both)))
        assert sorted(groups(fuse(made))) == [["exp"], ["nn.dense", "add", "nn.relu"]]
    whole = groups(fuse(relay.Function([x, w, y], relay.nn.relu(relay.exp(y) + product))))
    assert [sorted(g) for g in whole] == [["add", "exp", "nn.dense", "nn.relu"]]


def kernels_of(func: relay.Function) -> list[relay.Function]:
    fused = fuse(func)
    calls = [e for e in relay.analysis.post_order(fused.body) if isinstance(e, relay.Call)]
    return [c.op for c in calls if isinstance(c.op, relay.Function)]


@pytest.mark.parametrize("join", [relay.concatenate, relay.stack])
def test_very_many_tensors_are_joined_by_small_kernels(join: Any) -> None:
    xs = [var(f"x{i}", (1, 2)) for i in range(5000)]
    found = kernels_of(relay.Function(xs, relay.exp(join(xs, 0))))
    assert all(is_primitive(k) and len(k.params) <= 71 for k in found)  # the root of 5000
    assert len(found) == 72
    assert len({tvm.ir.structural_hash(k) for k in found}) == 3  # the last one has fewer, and one joins them
    few = relay.Function(xs[:256], join(xs[:256], 0))
    assert len(kernels_of(few)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("join", "axis"), [(relay.concatenate, 1), (relay.stack, -1)])
def test_joins_in_parts_keep_the_order(join: Any, axis: int) -> None:
    xs = [var(f"x{i}", (2, 1)) for i in range(300)]
    values = [np.full((2, 1), i, "float32") for i in range(300)]
    found = relay.create_executor("vm", relay.Function(xs, join(xs, axis)), tvm.cpu(), "llvm").evaluate()(
        *values
    )
    numpy_join = np.concatenate if join is relay.concatenate else np.stack
    np.testing.assert_array_equal(found.numpy(), numpy_join(values, axis))


# ---------------------------------------------------------------------------- rows
def norm(x: Any, axis: int = -1) -> Any:
    mean = relay.mean(x, axis=axis, keepdims=True)
    spread = relay.variance(x, axis=axis, keepdims=True, with_mean=mean)
    return (x - mean) / relay.sqrt(spread + relay.const(1e-5))


def on_gpu(body: Any, target: str = "opencl") -> list[list[str]]:
    with tvm.target.Target(target):
        return groups(fuse(relay.Function(relay.analysis.free_vars(body), body)))


def test_a_norm_is_one_kernel_on_gpus() -> None:
    x = var("x", (2, 5, 16))
    made = norm(x) * var("g", (16,)) + var("b", (16,))
    (kernel,) = on_gpu(relay.cast(made, "float16"), "cuda -arch=sm_80")
    assert {"mean", "variance", "sqrt", "divide", "multiply", "cast"} <= set(kernel)
    assert (
        len(groups(fuse(relay.Function(relay.analysis.free_vars(made), made)))) > 1
    )  # processors have no such


def test_what_a_product_gives_is_normed_by_another_kernel() -> None:
    x, w = var("x", (5, 16)), var("w", (16, 16))
    first, second = on_gpu(norm(relay.nn.dense(x, w) + x))
    assert first == ["nn.dense", "add"] and second[0] == "mean"


def test_a_root_mean_square_takes_what_is_before_it() -> None:
    x = relay.exp(var("x", (5, 16)))
    mean = relay.mean(x * x, axis=[1], keepdims=True)
    made = x * relay.rsqrt(mean + relay.const(1e-5))
    (kernel,) = on_gpu(made)
    assert kernel[0] == "exp" and kernel[-1] == "multiply"
    _, kernel, last = on_gpu(relay.Tuple([made, relay.nn.dense(x, var("w", (16, 16)))]))
    assert (
        kernel[0] == "multiply" and kernel[-1] == "multiply" and last == ["nn.dense"]
    )  # x is used elsewhere too


@pytest.mark.parametrize(
    "between",
    [
        lambda x: norm(x, axis=1),  # columns
        lambda x: x - relay.reshape(relay.mean(x, axis=2), (2, 5, 1)),  # the reduced axis is gone
        lambda x: (
            relay.transpose(x, (1, 0, 2)) - relay.transpose(relay.mean(x, axis=2, keepdims=True), (1, 0, 2))
        ),
    ],
)
def test_other_reductions_end_a_kernel(between: Any) -> None:
    assert len(on_gpu(between(var("x", (2, 5, 16))))) > 1


def test_a_kernel_over_rows_takes_and_gives_them_as_they_are() -> None:
    ids, table = relay.var("ids", shape=(2, 5), dtype="int32"), var("table", (30, 16))
    first, second = on_gpu(norm(relay.take(table, ids, axis=0) + var("p", (5, 16))))
    assert first == ["take", "add"] and second[0] == "mean"
    x = var("x", (2, 5, 16))
    for after in (
        lambda y: relay.transpose(y, (1, 0, 2)),
        lambda y: relay.sum(y, axis=1),
        lambda y: relay.concatenate([y, x], axis=1),
        lambda y: relay.add(y, var("more", (3, 1, 1, 16))),
    ):
        assert "mean" in on_gpu(after(norm(x)))[0] and len(on_gpu(after(norm(x)))) > 1


def test_arrays_are_part_of_functions_on_demand() -> None:
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], x + relay.const([1.0, 2.0])))
    for link, count in ((False, 2), (True, 1)):
        with tvm.transform.PassContext(config={"relay.FuseOps.link_params": link}):
            made = relay.transform.FuseOps(2)(relay.transform.InferType()(mod))
        assert len(made["main"].body.op.params) == count
