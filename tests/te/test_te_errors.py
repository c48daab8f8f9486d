"""What tensor expressions refuse, with the full text that the user sees."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir import ops as tir
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.errors import TensorExpressionError

n, m = te.var("n"), te.var("m")
A = te.placeholder((n, m), name="A")
V = te.placeholder((n,), name="V")
H = te.placeholder((4,), "float16", "H")
BF = te.placeholder((4,), "bfloat16", "BF")
I32 = te.placeholder((4,), "int32", "I32")
k = te.reduce_axis((0, m), "k")
r = te.reduce_axis((0, n), "r")
pair = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda a, b: (te.const(0, a), te.const(1, b)))


def refused(f, text: str) -> None:
    """`f` fails with `text`, in which `@` stands for the line that it is written on."""
    with pytest.raises(TensorExpressionError) as caught:
        f()
    assert str(caught.value) == text.replace("@", f"test_te_errors.py:{f.__code__.co_firstlineno}")


# ---------------------------------------------------------------------------- indices
def test_too_many_indices():
    refused(
        lambda: te.compute((n, m), lambda i, j: A[i, j, 0], name="C"),
        "te.compute `C`: `A` has 2 dimensions and is indexed with 3: A[i, j, 0]\n  at @",
    )


def test_too_few_indices():
    refused(
        lambda: te.compute((n, m), lambda i, j: A[i] + 1.0, name="C"),
        "te.compute `C`: `A` has 2 dimensions and is indexed with 1: A[i]\n  at @",
    )
    refused(
        lambda: te.compute((n,), lambda i: V(), name="C"),
        "te.compute `C`: `V` has 1 dimension and is indexed with 0: V[]\n  at @",
    )


def test_one_bracket_too_many():
    refused(
        lambda: te.compute((n,), lambda i: V[i][i], name="C"),
        "te.compute `C`: a tensor is indexed with more indices than it has dimensions\n  at @",
    )


def test_a_line_of_its_own_is_named():
    def rule(i, j):
        x = A[i, j]
        return x + V[i, j]

    with pytest.raises(TensorExpressionError) as caught:
        te.compute((n, m), rule, name="C")
    assert f"test_te_errors.py:{rule.__code__.co_firstlineno + 2}" in str(caught.value)


def test_outside_of_a_compute():
    refused(lambda: V(1, 2), "`V` has 1 dimension and is indexed with 2: V[1, 2]\n  at @")


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda: V[0.5], "`V` is indexed with 0.5, which is not an integer\n  at @"),
        (lambda: V[True], "`V` is indexed with True, which is not an integer\n  at @"),
        (lambda: V["x"], "`V` is indexed with 'x', which is not an integer\n  at @"),
        (lambda: V[I32], "`V` is indexed with the tensor `I32`: index that one, too\n  at @"),
        (
            lambda: V[H[0]],
            "`V` is indexed with `H[0]` of type float16; an index is an integer\n  at @\n"
            '  hint: convert it: .astype("int32")',
        ),
        (
            lambda: V[0:2] + 1,
            "`V` is indexed with a slice; an element has an index for each dimension\n  at @\n"
            "  hint: a part is what a tensor intrinsic takes; otherwise make the part you want with te.compute",
        ),
        (
            lambda: list(V),
            "`V` cannot be iterated over\n  at @\n  hint: its elements are A[i]; its dimensions A.shape",
        ),
        (
            lambda: list(A[0]),
            "`A[0]` cannot be iterated over\n  at @\n  hint: its elements are A[0][i]",
        ),
    ],
)
def test_what_is_no_index(f, reason):
    refused(f, reason)


@pytest.mark.parametrize("f", [lambda: bool(V), lambda: 1 if V else 2, lambda: V and A, lambda: not V])
def test_a_tensor_is_neither_true_nor_false(f):
    refused(
        f,
        "tensor `V` has no truth value while the program is being written\n  at @\n"
        "  hint: compare with None to see whether there is one; "
        "te.all, te.any and te.if_then_else take conditions",
    )


# ---------------------------------------------------------------------------- the function
def test_a_function_that_returns_no_expression():
    refused(
        lambda: te.compute((n,), lambda i: i is None, name="C"),
        "te.compute `C`: the function returned the Python value False, so a comparison was decided while the "
        "program was being written\n  at @\n"
        '  hint: compare expressions, join conditions with te.all and te.any, or return te.const(…, "bool")',
    )
    refused(
        lambda: te.compute((n,), lambda i: None, name="C"),
        "te.compute `C`: the function returned None\n  at @\n  hint: return the expression of the element",
    )
    refused(
        lambda: te.compute((n,), lambda i: "x", name="C"),
        "te.compute `C`: the function returned the string 'x' and must return an expression\n  at @",
    )
    refused(
        lambda: te.compute((n,), lambda i: V, name="C"),
        "te.compute `C`: the function returned the whole tensor `V`\n  at @\n"
        "  hint: return one element, as in V[i, j]",
    )
    refused(
        lambda: te.compute((n,), lambda i: {1}, name="C"),
        "te.compute `C`: the function returned {1}, which is not an expression\n  at @",
    )
    refused(
        lambda: te.compute((n,), lambda i: (), name="C"),
        "te.compute `C`: the function returned no values\n  at @",
    )


def test_a_function_of_the_wrong_number_of_arguments():
    hint = "\n  at @\n  hint: give it one argument for each dimension, or *i for all of them"
    refused(
        lambda: te.compute((n, m), lambda i: V[i], name="C"),
        "te.compute `C`: the function takes 1 argument and the shape has 2 dimensions" + hint,
    )
    refused(
        lambda: te.compute((n,), lambda i, j: V[i], name="C"),
        "te.compute `C`: the function takes 2 arguments and the shape has 1 dimension" + hint,
    )
    refused(
        lambda: te.compute((n, m), lambda i, j, l, *rest: V[i], name="C"),
        "te.compute `C`: the function takes 3 arguments and the shape has 2 dimensions" + hint,
    )
    refused(
        lambda: te.compute((n,), 3, name="C"), "te.compute `C`: 3 is not a function of the indices\n  at @"
    )
    refused(
        lambda: te.compute((n,), lambda *i: V(*i), name="C", varargs_names=["a", "b"]),
        "te.compute `C`: varargs_names has 2 names for 1 dimensions\n  at @",
    )


def test_python_decides_nothing_about_expressions():
    refused(
        lambda: te.compute((4,), lambda i: H[i] if i > 2 else H[0], name="C"),
        "te.compute `C`: `i > 2` is an expression: it has no truth value while the program is being written. "
        "Use tir.all / tir.any / tir.Not and tir.if_then_else instead of and / or / not and if.\n  at @",
    )


def test_types_without_a_common_one():
    reason = (
        "no common type for float16 and bfloat16: `H[{0}]` and `BF[{0}]`; cast one of them with .astype(…)"
    )
    refused(
        lambda: te.compute((4,), lambda i: H[i] + BF[i], name="C"),
        f"te.compute `C`: {reason.format('i')}\n  at @",
    )
    refused(lambda: H + BF, f"te.compute `T_add`: {reason.format('ax0')}\n  at @")


def test_division_of_integers_must_say_which():
    refused(
        lambda: te.compute((4,), lambda i: I32[i] / 2, name="C"),
        "te.compute `C`: `I32[i] / 2` divides integers; choose a division: floordiv/floormod "
        "(Python's //), truncdiv/truncmod (C's), indexdiv/indexmod (for indices), or cast to a float first"
        "\n  at @",
    )


def test_errors_of_the_users_own_function_stay_as_they_are():
    def broken(i):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        te.compute((n,), broken)
    with pytest.raises(TypeError) as caught:
        te.compute((n,), lambda i: len(3))
    assert str(caught.value) == "object of type 'int' has no len()"


# ---------------------------------------------------------------------------- reductions
def test_an_axis_that_is_not_reduced():
    refused(
        lambda: te.compute((n,), lambda i: A[i, k], name="C"),
        "te.compute `C`: `k` is a reduction axis that no reduction here runs over\n  at @\n"
        "  hint: reduce over it, as in te.sum(…, axis=k)",
    )
    refused(
        lambda: te.compute((n,), lambda i: te.sum(A[r, k], axis=k), name="C"),
        "te.compute `C`: `r` is a reduction axis that no reduction here runs over\n  at @\n"
        "  hint: reduce over it, as in te.sum(…, axis=r)",
    )


def test_a_reduction_inside_another_expression():
    text = (
        "te.compute `C`: a reduction stands inside another expression; it must be the top level of its "
        "compute\n  at @\n  hint: give the reduction a te.compute of its own and use its result here"
    )
    refused(lambda: te.compute((n,), lambda i: te.sum(A[i, k], axis=k) + 1.0, name="C"), text)
    refused(lambda: te.compute((1,), lambda i: te.sum(te.sum(A[r, k], axis=k), axis=r), name="C"), text)


def test_an_axis_twice():
    refused(
        lambda: te.compute((n,), lambda i: te.sum(A[i, k], axis=[k, k]), name="C"),
        "te.compute `C`: te.sum: axis `k` is used twice in one reduction\n  at @",
    )


def test_what_is_no_reduction_axis():
    tx = te.thread_axis((0, 8), "threadIdx.x", name="tx")
    refused(
        lambda: te.compute((n,), lambda i: te.sum(A[i, tx], axis=tx), name="C"),
        "te.compute `C`: te.sum: `tx` is not a reduction axis\n  at @\n"
        "  hint: make the axis with te.reduce_axis((0, n))",
    )
    refused(
        lambda: te.compute((n,), lambda i: te.max(A[i, k]), name="C"),
        "te.compute `C`: te.max of one value needs axis=\n  at @\n"
        "  hint: make the axis with te.reduce_axis((0, n))",
    )
    refused(
        lambda: te.compute((n,), lambda i: te.sum(A[i, k], axis=[1]), name="C"),
        "te.compute `C`: te.sum: axis=[1] is not a list of axes\n  at @\n  hint: make them with te.reduce_axis",
    )


def test_an_index_as_the_axis():
    refused(
        lambda: te.compute((n,), lambda i: te.sum(A[i, 0], axis=i), name="C"),
        "te.compute `C`: te.sum: axis=`i` is not a reduction axis\n  at @\n"
        "  hint: make the axis with te.reduce_axis((0, n))",
    )
    assert te.compute((n,), lambda i: te.max(A[i, 0], i), name="C").dtype == "float32"  # of two values


def test_reduction_of_a_whole_tensor():
    refused(
        lambda: te.sum(A, axis=k),
        "te.sum: the value is the whole tensor `A`\n  at @\n  hint: index it, as in A[i, k]",
    )


def test_conditions_and_starts_of_reductions():
    refused(
        lambda: te.sum(V[r], axis=r, where=r + 1),
        "te.sum: where=`r + 1` is int32 and must be a condition\n  at @",
    )
    refused(
        lambda: te.sum(V[r], axis=r, init=V[0] + 1.0),
        "te.sum: init=`V[0] + T.float32(1)` must be a constant or an element of a tensor\n  at @",
    )
    refused(
        lambda: te.sum(V[r], axis=r, init=H[0]),
        "te.sum: init=`H[0]` is float16 and the values are float32\n  at @",
    )
    refused(
        lambda: te.sum(V[r], axis=r, init=[1.0, 2.0]),
        "te.sum: init= has 2 values for a reduction of 1\n  at @",
    )


def test_outputs_of_different_reductions():
    hint = (
        "\n  at @\n  hint: several outputs must be the parts of one tuple reduction (te.comm_reducer), in "
        "order; make a compute for each reduction otherwise"
    )
    refused(
        lambda: te.compute((n,), lambda i: (te.sum(A[i, k], axis=k), te.max(A[i, k], axis=k)), name="C"),
        "te.compute `C`: it has 2 outputs and its reduction gives 1" + hint,
    )
    refused(
        lambda: te.compute((n,), lambda i: pair((A[i, k], V[i]), axis=k)[:1], name="C"),
        "te.compute `C`: it has 1 outputs and its reduction gives 2" + hint,
    )
    refused(
        lambda: te.compute(
            (n,), lambda i: pair((A[i, k], V[i]), k)[:1] + pair((V[i], V[i]), k)[1:], name="C"
        ),
        "te.compute `C`: output 1 and output 0 are different reductions" + hint,
    )
    refused(
        lambda: te.compute((n,), lambda i: pair((A[i, k], V[i]), k)[::-1], name="C"),
        "te.compute `C`: output 0 is part 1 of the reduction; keep their order\n  at @",
    )
    refused(
        lambda: te.compute((n,), lambda i: (te.sum(A[i, k], axis=k), V[i]), name="C"),
        "te.compute `C`: some of its outputs are reductions and some are not\n  at @\n"
        "  hint: make one compute of the reductions and another of the rest",
    )


def test_a_range_that_depends_on_a_later_axis():
    k = te.reduce_axis((0, 4), "k")
    j = te.reduce_axis((0, k.var + 1), "j")
    refused(
        lambda: te.compute((n,), lambda i: te.sum(V[j + k], axis=[j, k]), name="C"),
        "te.compute `C`: the range of reduction axis `j` depends on `k`, which is not an axis before it\n  at @\n"
        "  hint: list the axes of the reduction in the order in which their ranges depend on each other",
    )


def test_ranges_of_axes():
    refused(
        lambda: te.reduce_axis(5, "k"), "te.reduce_axis `k`: the range is 5 and must be (begin, end)\n  at @"
    )
    refused(
        lambda: te.reduce_axis((0, 1.5), "k"),
        "te.reduce_axis `k`: the range is (0, 1.5) and 1.5 is not an integer\n  at @",
    )
    refused(
        lambda: te.thread_axis((0, 4)),
        'te.thread_axis: the tag is missing\n  at @\n  hint: name the axis, say "threadIdx.x"',
    )


def test_reducers_that_do_not_fit():
    compares = te.comm_reducer(lambda x, y: x < y, lambda t: te.const(0, t), name="compares")
    refused(
        lambda: compares(V[r], axis=r),
        "reducer te.compares combines to bool for values of type float32: `x < y`\n  at @",
    )
    refused(
        lambda: pair((V[r], V[r], V[r]), axis=r),
        "reducer te.reduce: <lambda>() takes 2 positional arguments but 3 were given\n  at @",
    )


# ---------------------------------------------------------------------------- shapes and types
def test_shapes():
    refused(
        lambda: te.placeholder((4, 1.5), name="X"),
        "te.placeholder `X`: dimension 1 of the shape is 1.5 and must be an integer\n  at @",
    )
    refused(
        lambda: te.placeholder((4, -1), name="X"),
        "te.placeholder `X`: dimension 1 of the shape is negative: -1\n  at @",
    )
    refused(
        lambda: te.placeholder((te.var("x", "float32"),), name="X"),
        "te.placeholder `X`: dimension 0 of the shape, `x`, is float32 and must be an integer\n  at @",
    )
    refused(
        lambda: te.compute((I32[0],), lambda i: i, name="C"),
        "te.compute `C`: dimension 0 of the shape, `I32[0]`, depends on the elements of a tensor\n  at @\n"
        "  hint: pass the size as a te.var",
    )
    refused(
        lambda: te.placeholder("4", name="X"),
        "te.placeholder `X`: a shape is a tuple of dimensions, not '4'\n  at @",
    )
    refused(
        lambda: te.compute((True,), lambda i: V[i], name="C"),
        "te.compute `C`: dimension 0 of the shape is True and must be an integer\n  at @",
    )


def test_data_types():
    refused(
        lambda: te.placeholder((4,), "float31", "X"),
        "te.placeholder `X`: unknown data type 'float31'; known are float32, float16, bfloat16, "
        "int8 … int64, uint8 … uint64, bool, handle, float32x8\n  at @",
    )


def test_shapes_that_do_not_broadcast():
    refused(
        lambda: A + V,
        "te.compute `T_add`: shapes (n, m) and (n,) do not broadcast: m and n are not known to be equal"
        "\n  at @\n  hint: dimensions that differ must be 1 in one of the operands",
    )
    refused(
        lambda: te.placeholder((2, 3)) * te.placeholder((4,)),
        "te.compute `T_multiply`: shapes (2, 3) and (4,) do not broadcast: 3 and 4 are not known to be equal"
        "\n  at @\n  hint: dimensions that differ must be 1 in one of the operands",
    )


def test_operands_that_are_none():
    with pytest.raises(TypeError, match="unsupported operand"):
        A + "x"


# ---------------------------------------------------------------------------- scan
def scan_parts(**changes):
    state = changes.get("state", te.placeholder((m, n), name="state"))
    init = changes.get("init", te.compute((1, n), lambda t, i: 0.0, name="first"))
    update = changes.get("update", te.compute((m, n), lambda t, i: 0.0, name="update"))
    return init, update, state


def test_scans_whose_parts_do_not_fit():
    refused(
        lambda: te.scan(*scan_parts(update=te.compute((m, n), lambda t, i: 0, name="update")), name="S"),
        "te.scan `S`: update `update` is int32 and its state `state` is float32\n  at @",
    )
    refused(
        lambda: te.scan(*scan_parts(init=te.compute((1,), lambda t: 0.0, name="first")), name="S"),
        "te.scan `S`: init `first` has 1 dimensions and its state `state` has 2; both have time as their "
        "first one\n  at @",
    )
    refused(
        lambda: te.scan(*scan_parts(init=te.compute((1, m), lambda t, i: 0.0, name="first")), name="S"),
        "te.scan `S`: dimension 1 of init `first` is m and that of its state `state` is n\n  at @",
    )
    refused(
        lambda: te.scan(*scan_parts(state=te.compute((m, n), lambda t, i: 0.0, name="state")), name="S"),
        "te.scan `S`: state 0, `state`, must be a te.placeholder\n  at @",
    )
    refused(
        lambda: te.scan([], [], [], name="S"),
        "te.scan `S`: there are 0 init, 0 update and 0 state_placeholder tensors; each state needs one of "
        "each\n  at @",
    )
    refused(
        lambda: te.scan(3, A, A, name="S") if False else te.scan([3], [A], [A], name="S"),
        "te.scan `S`: init must be tensors, not 3\n  at @",
    )


def make_scan(step):
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda t, i: 0.0, name="first")
    update = step(state)
    return te.scan(init, update, state, name="S"), update


def message(f) -> str:
    """The error's text without its place, which is that of the operation at fault."""
    with pytest.raises(TensorExpressionError) as caught:
        f()
    return "\n".join(line for line in str(caught.value).splitlines() if not line.startswith("  at test_te"))


def test_steps_of_scans_that_have_no_order():
    S, _ = make_scan(lambda s: te.compute((m, n), lambda t, i: s[t, i], name="update"))
    assert message(lambda: te.create_prim_func([S])) == (
        "te.compute `update`: it reads the state `state` at the step that is being computed: `state[t, i]`\n"
        "  hint: read an earlier step, as in state[t - 1, i]"
    )

    def late(s):
        mid = te.compute((m, n), lambda t, i: s[t - 1, i], name="mid")
        return te.compute((m, n), lambda t, i: mid[t - 1, i], name="update")

    S, _ = make_scan(late)
    assert message(lambda: te.create_prim_func([S])) == (
        "te.compute `update`: it reads `mid` at another step than its own: `mid[t - 1, i]`\n"
        "  hint: index it with `t`; only the state keeps earlier steps"
    )

    def flat(s):
        mid = te.compute((n,), lambda i: s[0, i], name="mid")
        return te.compute((m, n), lambda t, i: mid[i], name="update")

    S, _ = make_scan(flat)
    assert message(lambda: te.create_prim_func([S])) == (
        "te.compute `mid`: it is part of the step of te.scan `S`, so its first dimension must be time, "
        "of size m"
    )


def test_a_step_is_not_to_be_seen_outside_its_scan():
    S, update = make_scan(lambda s: te.compute((m, n), lambda t, i: s[t - 1, i], name="update"))
    outside = te.compute((m, n), lambda i, j: update[i, j] + S[i, j], name="outside")
    assert message(lambda: te.create_prim_func([outside])) == (
        "te.compute `outside`: it reads `update`, which exists only inside the steps of te.scan `S`\n"
        "  hint: read the result of the scan"
    )
    assert message(lambda: te.create_prim_func([S, update])) == (
        "create_prim_func: `update` is an argument, but it exists only inside the steps of te.scan `S`"
    )


def test_scans_inside_scans():
    def nested(s):
        inner = te.placeholder((m, n), name="inner")
        init = te.compute((1, n), lambda t, i: s[0, i], name="i0")
        step = te.compute((m, n), lambda t, i: inner[t - 1, i], name="i1")
        T = te.scan(init, step, inner, name="T")
        return te.compute((m, n), lambda t, i: T[t, i], name="update")

    assert message(lambda: te.create_prim_func([make_scan(nested)[0]])) == (
        "te.scan `T`: a scan inside the step of another scan is not supported"
    )


# ---------------------------------------------------------------------------- extern
def test_externs_that_do_not_fit():
    refused(
        lambda: te.extern((4,), [H], lambda ins, outs: None, name="E"),
        "te.extern `E`: the function returned None and must return a statement or an expression\n  at @\n"
        "  hint: return tir.call_packed(…) or the .get() of a tir.ir_builder",
    )
    refused(
        lambda: te.extern((4,), [H, BF], lambda ins, outs: tir.call_packed("f"), name="E"),
        "te.extern `E`: the data type of the outputs is not given and the inputs are bfloat16, float16\n"
        "  at @\n  hint: pass dtype=",
    )
    refused(
        lambda: te.extern((4,), [], lambda ins, outs: tir.call_packed("f"), name="E"),
        "te.extern `E`: the data type of the outputs is not given and there are no inputs\n  at @\n"
        "  hint: pass dtype=",
    )
    refused(
        lambda: te.extern([(4,), (4,)], [H], lambda ins, outs: None, name="E", dtype=["int8"]),
        "te.extern `E`: dtype= has 1 types for 2 outputs\n  at @",
    )
    wrong = decl_buffer((5,), "float16", "wrong")
    refused(
        lambda: te.extern((4,), [H], lambda ins, outs: None, name="E", in_buffers=[wrong]),
        "te.extern `E`: in_buffers: Buffer(wrong, (5), float16) stands for a tensor of shape (4,) and "
        "type float16\n  at @",
    )
    refused(
        lambda: te.extern((4,), [1], lambda ins, outs: None, name="E"),
        "te.extern `E`: inputs must be tensors, not 1\n  at @",
    )


def test_primfuncs_that_do_not_fit():
    X = te.placeholder((4,), name="X")
    func = te.create_prim_func([X, te.compute((4,), lambda i: X[i], name="Y")])
    refused(
        lambda: te.extern_primfunc([X, X], func, name="E"),
        "te.extern_primfunc `E`: the function reads 1 buffers (X) and 2 tensors are given\n  at @",
    )
    refused(
        lambda: te.extern_primfunc([H], func, name="E"),
        "te.extern_primfunc `E`: the function: Buffer(X, (4), float32) stands for a tensor of shape (4,) and "
        "type float16\n  at @",
    )


# ---------------------------------------------------------------------------- create_prim_func
def test_an_input_that_is_not_passed():
    B = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    assert message(lambda: te.create_prim_func([B])) == (
        "create_prim_func: te.placeholder `A` is read but is not an argument\n  hint: pass it to the function"
    )


def test_a_variable_without_a_value():
    alpha = te.var("alpha", "float32")
    B = te.compute((4,), lambda i: H[i].astype("float32") * alpha, name="B")
    assert message(lambda: te.create_prim_func([H, B])) == (
        "te.compute `B`: variable `alpha` has no value: it is neither an argument nor a dimension of an argument\n"
        "  hint: pass `alpha` to the function"
    )
    q = te.var("q")
    X = te.placeholder((q * 2 + 1,), name="X")
    C = te.compute((q * 2 + 1,), lambda i: X[i], name="C")
    assert message(lambda: te.create_prim_func([X, C])) == (
        "te.placeholder `X`: variable `q` has no value: it is neither an argument nor a dimension of an argument\n"
        "  hint: pass `q` to the function"
    )
    assert te.create_prim_func([X, C, q]).params[2] is q


def test_the_index_of_another_compute():
    leaked = []
    te.compute((4,), lambda i: leaked.append(i) or H[i], name="first")
    B = te.compute((4,), lambda j: H[leaked[0]], name="B")
    assert message(lambda: te.create_prim_func([H, B])) == (
        "te.compute `B`: variable `i` has no value: it is neither an argument nor a dimension of an argument\n"
        "  hint: pass `i` to the function"
    )


def test_arguments_twice_or_of_another_kind():
    B = te.compute((4,), lambda i: H[i], name="B")
    assert message(lambda: te.create_prim_func([H, B, H])) == (
        "create_prim_func: `H` is given twice as an argument"
    )
    assert message(lambda: te.create_prim_func([H, B, 3])) == (
        "create_prim_func: argument 2 is 3 and must be a tensor or a variable"
    )


def test_outputs_that_are_not_there():
    assert message(lambda: A.op.output(1)) == "te.placeholder `A`: there is no output 1; it has 1"


def test_tag_scopes_do_not_nest():
    def nested():
        with te.tag_scope("a"), te.tag_scope("b"):
            pass

    assert message(nested) == "te.tag_scope('b'): tag scopes do not nest"

    def both():
        with te.tag_scope("a"):
            te.compute((n,), lambda i: V[i], name="C", tag="b")

    assert (
        message(both)
        == "te.compute `C`: tag 'b' is given inside a scope of tag 'a'; give only one of the two"
    )
    assert te.TagScope.get_current() is None
