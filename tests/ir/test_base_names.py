"""Classic names of `ir`, `runtime` and `tir`: nodes by name, paths, functions by name, plain containers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import runtime, te, tir
from tilewright.ir.errors import LoweringError, UnsupportedError
from tilewright.script import tir as T


def test_make_node() -> None:
    x = tir.Var("x", "int32")
    made = tvm.ir.make_node("tir.Add", a=x, b=1)
    tvm.ir.assert_structural_equal(made, tir.Add(x, tir.const(1)))
    assert tvm.ir.make_node("IntImm", dtype="int32", value=7, span=None).value == 7
    assert tvm.ir.make_node("DictAttrs", a=1) == {"a": 1}
    with pytest.raises(
        tvm.TVMError, match=r"make_node\('tir\.Ad'\): there is no such node; did you mean .*And"
    ):
        tvm.ir.make_node("tir.Ad")
    with pytest.raises(TypeError, match="Add has no field 'c'; its fields are a, b"):
        tvm.ir.make_node("tir.Add", a=1, c=2)
    with pytest.raises(TypeError, match=r"make_node\('tir\.Add'\): .*'b'"):
        tvm.ir.make_node("tir.Add", a=1)


def test_first_mismatch_has_a_path() -> None:
    mismatch = tvm.ir.base.get_first_structural_mismatch
    assert mismatch(tir.Evaluate(1), tir.Evaluate(1)) is None
    two = [tir.SeqStmt([tir.Evaluate(0), tir.Evaluate(tir.Var("v", t))]) for t in ("int32", "float32")]
    found = mismatch(*two)
    assert found is not None and str(found[0]).startswith("<root>.seq[1].value")
    root = runtime.ObjectPath.root()
    assert root.attr("seq").array_index(1).is_prefix_of(found[0])
    named = [tir.PrimFunc([], tir.Evaluate(0)).with_attr("k", v) for v in (1, 2)]
    path = mismatch(*named)
    assert path is not None and path[0] == root.attr("attrs").map_value("k")


def test_an_entry_that_one_side_lacks_has_a_path() -> None:
    mismatch, root = tvm.ir.base.get_first_structural_mismatch, runtime.ObjectPath.root()
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    ones = [tir.Evaluate(x + k) for k in range(4)]
    seq = root.attr("seq")
    assert mismatch(tir.SeqStmt(ones), tir.SeqStmt(ones[:3])) == (
        seq.array_index(3),
        seq.missing_array_element(3),
    )
    # A difference inside comes before the one of the lengths.
    inside = seq.array_index(2).attr("value").attr("b").attr("value")
    assert mismatch(tir.SeqStmt([*ones[:2], ones[3]]), tir.SeqStmt(ones)) == (inside, inside)
    params = root.attr("params")
    assert mismatch(tir.PrimFunc([x], ones[0]), tir.PrimFunc([x, y], ones[0])) == (
        params.missing_array_element(1),
        params.array_index(1),
    )
    kind = params.array_index(0).attr("dtype")
    z = tir.Var("z", "float32")
    assert mismatch(tir.PrimFunc([y], ones[0]), tir.PrimFunc([z], ones[0])) == (kind, kind)


def test_paths_through_buffer_maps() -> None:
    mismatch, root = tvm.ir.base.get_first_structural_mismatch, runtime.ObjectPath.root()
    x, y = tir.Var("x", "handle"), tir.Var("y", "handle")
    short, long = tir.decl_buffer((10,)), tir.decl_buffer((20,))
    one, other, more = (
        tir.PrimFunc([x], tir.Evaluate(0), buffer_map=m) for m in ({x: short}, {x: long}, {x: short, y: long})
    )
    buffers = root.attr("buffer_map")
    size = buffers.map_value(x).attr("shape").array_index(0).attr("value")
    assert mismatch(one, other) == (size, size)
    assert mismatch(one, more) == (buffers.missing_map_entry(), buffers.map_value(y))
    assert mismatch(more, one) == (buffers.map_value(y), buffers.missing_map_entry())


def test_arrays_are_compared_by_their_contents() -> None:
    one, same, other = (tvm.nd.array(np.array(v)) for v in ([1, 2, 3], [1, 2, 3], [1, 2, 4]))
    assert tvm.ir.structural_equal(one, same) and not tvm.ir.structural_equal(one, other)
    assert tvm.ir.structural_hash(one) == tvm.ir.structural_hash(same) != tvm.ir.structural_hash(other)
    funcs = [tir.PrimFunc([], tir.Evaluate(0)).with_attr("data", d) for d in (one, same)]
    tvm.ir.assert_structural_equal(*funcs)


def test_object_path() -> None:
    root = runtime.ObjectPath.root()
    path = root.attr("body").array_index(2).map_value("k")
    assert str(path) == "<root>.body[2]['k']" and len(path) == 4
    assert path == runtime.ObjectPath.parse(str(path)) and hash(path) == hash(
        runtime.ObjectPath.parse(str(path))
    )
    assert path.parent == path.get_prefix(3) == root.attr("body").array_index(2)
    assert root.is_prefix_of(path) and not path.is_prefix_of(root) and root.parent is None
    assert str(root.missing_array_element(3).missing_map_entry()) == (
        "<root>[<missing element #3>][<missing entry>]"
    )
    assert str(runtime.ObjectPath.root("mod").attr("x")) == "mod.x"
    with pytest.raises(IndexError, match="no prefix of 5"):
        path.get_prefix(5)
    with pytest.raises(ValueError, match="is not a path"):
        runtime.ObjectPath.parse(".a..b")


def test_env_func() -> None:
    @tvm.register_func("test.base_names.add_one", override=True)
    def add_one(x: int) -> int:
        return x + 1

    found = tvm.ir.EnvFunc.get("test.base_names.add_one")
    assert found(3) == 4 == found.func(3) and found.name == "test.base_names.add_one"
    assert found == tvm.ir.EnvFunc.get("test.base_names.add_one")
    runtime.remove_global_func("test.base_names.add_one")
    with pytest.raises(tvm.TVMError, match="no function is registered"):
        tvm.ir.EnvFunc.get("test.base_names.add_one")


def test_register_op_attr() -> None:
    tvm.ir.register_op_attr("test.base_names_op", "plain", 3)

    @tvm.ir.register_op_attr("test.base_names_op", "made")
    def made() -> None: ...

    op = tvm.ir.Op.get("test.base_names_op")
    assert op.get_attr("plain") == 3 and op.get_attr("made") is made


def test_containers() -> None:
    value = runtime.container.ADT(2, [1, "a"])
    assert (value.tag, len(value), list(value), value[0]) == (2, 2, [1, "a"], 1)
    assert runtime.container.tuple_object([5]).tag == 0
    assert tvm.container.Map({"a": 1})["a"] == 1


def test_vscale() -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        A[0] = T.vscale() * 4

    assert str(tir.vscale() * 4) == "T.vscale() * 4"
    tvm.ir.assert_structural_equal(tvm.script.from_source(f.script()), f)
    with pytest.raises(
        LoweringError,
        match=r"`T\.vscale\(\)` is the length factor of scalable vectors, and the target .* has none",
    ):
        tvm.build(f)


def test_reducers_in_their_classic_home() -> None:
    assert tir.sum is te.sum and tir.comm_reducer is te.comm_reducer


def test_passes_that_are_none_of_their_own() -> None:
    for name, told in {
        "TextureFlatten": "no target has textures",
        "BF16Legalize": "computes narrow floats in float32",
        "LiftThreadBinding": "UnifyThreadBinding",
        "MergeDynamicSharedMemoryAllocations": "StorageRewrite",
        "ReduceBranchingThroughOvercompute": "LoopPartition",
    }.items():
        with pytest.raises(UnsupportedError, match=rf"tir\.transform\.{name} is not part of .*{told}"):
            getattr(tir.transform, name)()
