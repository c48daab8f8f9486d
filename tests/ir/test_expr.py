"""Expressions: what they are, how Python's operators build them, what is refused."""

from __future__ import annotations

import copy
import math
import operator
import re
from typing import Any

import numpy as np
import pytest

from tilewright.ir import ops, structural_equal
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CommReducer,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Mul,
    Not,
    Ramp,
    Range,
    Reduce,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    const,
    const_value,
    convert,
)
from tilewright.ir.stmt import BufferStore
from tilewright.ir.types import PointerType, PrimType

i, j = Var("i"), Var("j")
x, y = Var("x", "float32"), Var("y", "float32")


# -- operators ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("made", "cls"),
    [
        (i + j, Add),
        (i - j, Sub),
        (i * j, Mul),
        (x / y, Div),
        (i // j, FloorDiv),
        (i % j, FloorMod),
        (i < j, LT),
        (i <= j, LE),
        (i > j, GT),
        (i >= j, GE),
        (i == j, EQ),
        (i != j, NE),
    ],
)
def test_operators(made: Any, cls: type) -> None:
    assert made.__class__ is cls
    assert made.dtype == ("bool" if cls in (LT, LE, GT, GE, EQ, NE) else made.a.dtype)
    assert {made.a, made.b} in ({i, j}, {x, y})


def test_operators_with_numbers_on_either_side() -> None:
    assert (1 + i).__class__ is Add and (1 + i).a.value == 1
    assert (1 - i).a.value == 1 and (i - 1).b.value == 1
    assert (2.0 / x).a.dtype == "float32" and (7 // i).a.value == 7 and (7 % i).a.value == 7
    assert operator.lt(3, i).__class__ is GT, "Python turns it around"
    assert (2**x).op.name == "tir.pow" and (x**2).__class__ is Mul
    assert (1 << i).op.name == "tir.shift_left" and (1 >> i).op.name == "tir.shift_right"
    assert (1 & i).op.name == "tir.bitwise_and" and (i | 1).op.name == "tir.bitwise_or"
    assert (i ^ 1).op.name == "tir.bitwise_xor" and (1 | i).op.name == "tir.bitwise_or"
    assert (~i).op.name == "tir.bitwise_not" and (~(i < j)).__class__ is Not
    assert +i is i and (-i).__class__ is Sub and (-x).__class__ is Mul
    assert abs(x).op.name == "tir.fabs" and abs(i).__class__ is Select


def test_numbers_take_the_type_of_the_expression() -> None:
    assert (x + 1).b.dtype == "float32" and (Var("k", "int64") + 1).b.dtype == "int64"
    assert (Var("h", "float16") * 0.5).b.dtype == "float16"
    assert (i + 0.5).dtype == "float32" and (i + 0.5).a.__class__ is Cast
    assert (Var("b", "uint8") + 300).dtype == "int64"
    assert (i + np.int64(3)).dtype == "int32", "a NumPy scalar is a number like any other"
    assert (x * np.float64(2.0)).dtype == "float32"
    assert (np.int64(3) + i).dtype == "int32" and (np.float32(2) * x).dtype == "float32"


def test_equality_builds_and_asks_for_identity() -> None:
    assert bool(i == i) and not bool(i == j) and bool(i != j) and not bool(i != i)
    assert i in [j, i] and i not in [j] and [j, i].index(i) == 1
    assert len({i, j, i}) == 2 and {i: 1}[i] == 1
    assert (i == None) is False and (i != None) is True  # noqa: E711
    assert (i == "i") is False
    assert not bool(i == Var("i")), "two variables of one name are two"
    assert bool(const(3) == 3) and not bool(const(3) == 4) and const(3) in [const(3)]
    assert {const(3): "a"}[const(3)] == "a"


def test_an_expression_has_no_truth() -> None:
    with pytest.raises(ValueError, match=r"is an expression: it has no truth value.*tir.all"):
        bool(i < j)
    with pytest.raises(ValueError, match="no truth value"):
        _ = i < j and j < i
    assert bool(const(1)) and not bool(const(0)) and bool(const(True))


def test_integers_as_python_numbers() -> None:
    assert int(const(5)) == 5 and list(range(10))[const(5)] == 5 and float(const(2.5)) == 2.5


def test_dividing_integers_must_be_said() -> None:
    with pytest.raises(RuntimeError, match="divides integers; choose a division: floordiv"):
        _ = i / j


def test_what_is_no_operand() -> None:
    for wrong in ("a", None, [1], object()):
        with pytest.raises(TypeError):
            _ = i + wrong
        with pytest.raises(TypeError):
            _ = wrong < i
    with pytest.raises(TypeError, match="no common type for handle and int32"):
        _ = Var("p", "handle") + i
    with pytest.raises(TypeError, match=r"no common type for bfloat16 and float16.*\.astype"):
        _ = Var("a", "bfloat16") + Var("b", "float16")
    with pytest.raises(TypeError, match="vectors of 4 and 8 lanes do not go together"):
        _ = Var("a", "int32x4") + Var("b", "int32x8")


def test_constructors_check_types() -> None:
    with pytest.raises(TypeError, match="Add of mismatched types int32 and float32: `i` and `x`; cast one"):
        Add(i, x)
    with pytest.raises(TypeError, match="Select of mismatched types"):
        Select(i < j, i, x)
    with pytest.raises(TypeError, match="Let of mismatched types int32 and float32"):
        Let(i, x, i)
    with pytest.raises(TypeError, match="LT of mismatched types"):
        LT(i, x)
    with pytest.raises(TypeError, match="cannot use <object"):
        Add(i, object())


def test_methods() -> None:
    assert i.astype("float32").__class__ is Cast and i.astype("int32") is i
    assert i.equal(j).__class__ is EQ and i.asobject() is i and i.same_as(i) and not i.same_as(j)
    assert copy.deepcopy(i) is i and copy.copy(i) is i


# -- constants ----------------------------------------------------------------------------------
def test_const() -> None:
    assert (const(1).dtype, const(1.0).dtype, const(True).dtype) == ("int32", "float32", "bool")
    assert const(1 << 40).dtype == "int64" and const(-(1 << 31)).dtype == "int32"
    assert const(np.int8(3)).dtype == "int8" and const(np.float16(1)).dtype == "float16"
    assert const(1, "float32").__class__ is FloatImm and const(1.0, "int32").__class__ is IntImm
    vector = const(3, "int32x4")
    assert vector.__class__ is Broadcast and vector.dtype == "int32x4" and const_value(vector) == 3
    assert const(math.inf, "float32").value == math.inf
    for value, kind in ((256, "uint8"), (-1, "uint32"), (128, "int8"), (2, "bool"), (1 << 64, "uint64")):
        with pytest.raises(ValueError, match=f"{value} does not fit into {kind}"):
            const(value, kind)
    for value in (math.inf, math.nan):
        with pytest.raises(ValueError, match="does not fit into int32"):
            const(value, "int32")


def test_convert() -> None:
    assert convert(i) is i and convert(True).dtype == "bool" and convert(2.5).dtype == "float32"
    assert convert("text").__class__ is StringImm and convert(np.int64(2)).dtype == "int64"
    iv = IterVar((0, 4), "k", IterVar.CommReduce)
    assert convert(iv) is iv.var and (iv + 1).a is iv.var
    with pytest.raises(TypeError, match=r"cannot use None \(NoneType\) as an expression"):
        convert(None)


def test_a_scalar_of_numpy_keeps_its_type() -> None:
    for kind in (np.uint8, np.int64, np.float16, np.float32, np.float64):
        assert const(kind(1)).dtype == np.dtype(kind).name
    assert const(1.0).dtype == "float32"
    assert (Var("x", "float32") * np.float64(2)).dtype == "float32"  # an operand does not widen the other


def test_text_is_not_cast() -> None:
    with pytest.raises(
        TypeError, match='Can\'t cast a handle to other types: "s" is a text, and int32 was asked for'
    ):
        StringImm("s").astype("int32")


def test_one_bit_has_two_values() -> None:
    assert [IntImm("int1", v).value for v in (-1, 0, 1)] == [-1, 0, 1]
    with pytest.raises(ValueError, match="2 does not fit into int1"):
        IntImm("int1", 2)


def test_const_value() -> None:
    assert const_value(const(3)) == 3 and const_value(const(2.5)) == 2.5 and const_value(i) is None
    assert const_value(7) == 7 and const_value(i + 1) is None


def test_immediates() -> None:
    assert FloatImm("float32", 1).value.__class__ is float
    with pytest.raises(TypeError, match="FloatImm of type int32"):
        FloatImm("int32", 1.0)
    assert StringImm("a") == "a" and StringImm("a") == StringImm("a") and StringImm("a") != "b"
    assert hash(StringImm("a")) == hash("a")


# -- variables ----------------------------------------------------------------------------------
def test_vars() -> None:
    assert i.dtype == "int32" and i.type_annotation == PrimType("int32") and i.name_hint == "i"
    pointer = Var("p", PointerType(PrimType("float32"), "shared"))
    assert pointer.dtype == "handle" and pointer.type_annotation.storage_scope == "shared"
    assert isinstance(Var("p", "handle").type_annotation, PointerType)
    assert i.copy_with_suffix("_o").name == "i_o" and i.copy_with_suffix("_o").dtype == "int32"
    size = SizeVar("n", "int64")
    assert size.dtype == "int64" and isinstance(size, Var) and size.copy_with_suffix("1").__class__ is SizeVar
    renamed = pointer.replace(name="q")
    assert renamed.name == "q" and renamed.type_annotation == pointer.type_annotation


# -- vectors, memory, calls ---------------------------------------------------------------------
def test_vectors() -> None:
    ramp = Ramp(i, 1, 4)
    assert ramp.dtype == "int32x4" and Ramp(Var("k", "int64"), 1, 4).stride.dtype == "int64"
    assert Ramp(ramp, Broadcast(8, 4), 2).dtype == "int32x8"
    assert Broadcast(x, 8).dtype == "float32x8" and (Broadcast(x, 8) + 1).dtype == "float32x8"
    assert (Broadcast(x, 8) < y).dtype == "boolx8"
    assert Shuffle([ramp, ramp], [0, 7]).dtype == "int32x2" and Shuffle([ramp], [3]).dtype == "int32"


def test_loads() -> None:
    buffer = decl_buffer((8, 8), "float16", "A")
    assert BufferLoad(buffer, [i, j]).dtype == "float16"
    assert BufferLoad(buffer, [i, Ramp(0, 1, 4)]).dtype == "float16x4"
    vectors = decl_buffer((8,), "float32x4", "V")
    assert BufferLoad(vectors, [i]).dtype == "float32x4"
    with pytest.raises(ValueError, match="buffer A has 2 dimensions and was indexed with 1"):
        BufferLoad(buffer, [i])
    assert BufferLoad(decl_buffer((), "int8"), []).dtype == "int8"


def test_calls() -> None:
    made = Call("float32", "tir.exp", [x])
    assert made.op.name == "tir.exp" and made.args == (x,) and Call("float32", "exp", [x]).op is made.op
    with pytest.raises(ValueError, match=r"no operator is named 'tir.exq'; did you mean tir.exp"):
        Call("float32", "tir.exq", [x])
    assert Call("int32", "tir.likely", (1,)).args[0].__class__ is IntImm


# -- ranges and iterators -----------------------------------------------------------------------
def test_ranges() -> None:
    assert (Range(8).min.value, Range(8).extent.value) == (0, 8)
    assert (Range(2, 8).min.value, Range(2, 8).extent.value) == (2, 6)
    assert (Range.from_min_extent(2, 8).min.value, Range.from_min_extent(2, 8).extent.value) == (2, 8)
    wide = Var("n", "int64")
    assert Range(wide).min.dtype == "int64" and Range(0, wide).min.dtype == "int64"
    assert Range.from_min_extent(0, wide).min.dtype == "int64"
    one = Range(i, j)
    assert one.map_children(lambda e: e) is one and repr(Range(2, 8)) == "Range(2, 8)"
    assert one.replace(min=j).min is j and one.replace(min=j).extent is one.extent
    with pytest.raises(TypeError, match="Range has no field 'begin'"):
        one.replace(begin=i)


def test_iter_vars() -> None:
    iv = IterVar((0, 8), "k", IterVar.CommReduce)
    assert iv.var.name == "k" and iv.dtype == "int32" and iv.dom.extent.value == 8
    thread = IterVar(None, Var("t"), IterVar.ThreadIndex, "threadIdx.x")
    assert thread.dom is None and thread.children() == [] and thread.map_children(lambda e: e) is thread
    changed = iv.map_children(lambda r: Range(0, 4))
    assert changed.var is iv.var and changed.dom.extent.value == 4
    assert bool(iv == iv) and not bool(iv == thread)
    assert IterVar(Range(Var("n", "int64")), "k", 0).var.dtype == "int64"


def test_reducers() -> None:
    a, b = Var("a", "float32"), Var("b", "float32")
    total = CommReducer([a], [b], [a + b], [const(0.0)])
    (made,) = total((x,), (y,))
    assert structural_equal(made, x + y)
    reduce = Reduce(total, [x], [IterVar((0, 4), "k", 2)], True, 0)
    assert reduce.dtype == "float32" and reduce.init == () and reduce.condition.dtype == "bool"
    assert Reduce(total, [x], [], True, 0, None).init == ()


# -- nodes --------------------------------------------------------------------------------------
def test_children_and_map_children() -> None:
    made = Select(i < j, i, j)
    assert all(a is b for a, b in zip(made.children(), [made.condition, i, j], strict=True))
    assert made.map_children(lambda e: e) is made
    swapped = made.map_children(lambda e: j if e is i else e)
    assert swapped is not made and swapped.true_value is j and swapped.condition is made.condition


def test_replace() -> None:
    made = i + j
    assert made.replace(a=j).a is j and made.replace(a=j).b is j
    with pytest.raises(TypeError, match="Add has no field 'c'"):
        made.replace(c=1)


def test_nodes_are_immutable_under_check() -> None:
    if not hasattr(i, "_sealed"):
        pytest.skip("needs TILEWRIGHT_CHECK=1")
    with pytest.raises(AttributeError, match=r"Add is immutable: use replace\(a=…\)"):
        (i + j).a = j  # type: ignore[attr-defined]
    (i + j).span = None


def test_predicates_of_accesses() -> None:
    """A mask has one boolean for each lane; integers of one bit are taken for booleans."""
    b = decl_buffer((24,), "int32", "b")
    four, eight = 4 * ops.vscale(), 8 * ops.vscale()
    index, value = Ramp(0, 1, four), Broadcast(1, four)
    for mask, reason in [
        (Broadcast(1, four), "elements must be boolean values, but got int32."),
        (Broadcast(const(True), 4), "dtype and {} must both be scalable."),
        (Broadcast(const(True), eight), "with 8 lanes, but trying to {} with 4 lanes."),
    ]:
        for make, words in [
            (lambda m: BufferStore(b, value, [index], m), ("value dtype", "store a value")),
            (lambda m: BufferLoad(b, [index], m), ("load indices", "load a vector")),
        ]:
            told = reason.format(words[0] if "both" in reason else words[1])
            with pytest.raises(TypeError, match=re.escape(told)) as bad:
                make(mask)
            assert "The access to b has the type int32xvscalex4" in str(bad.value)
    held = BufferLoad(b, [index], Broadcast(IntImm("int1", 0), four)).predicate
    assert held is not None and held.dtype == "boolxvscalex4"


def test_a_number_beyond_float32_is_a_float64() -> None:
    assert const(3.402e39).dtype == "float64" and const(-3.402e39).dtype == "float64"
    assert const(3.4e38).dtype == "float32" and const(math.inf).dtype == "float32"
