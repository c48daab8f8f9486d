"""Classic homes of names that live elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from tilewright._ffi.registry import list_global_func_names, register_func, remove_global_func

import tilewright as tvm
from tilewright import te
from tilewright._ffi.runtime_ctypes import DataTypeCode
from tilewright.ir.errors import UnsupportedError


def test_codes_of_types() -> None:
    assert tvm.DataTypeCode is DataTypeCode
    kinds = {"int8": "INT", "uint32": "UINT", "float64": "FLOAT", "bfloat16": "BFLOAT", "handle": "HANDLE"}
    for name, code in kinds.items():
        assert tvm.runtime.DataType(name).type_code == DataTypeCode[code]


def test_functions_are_listed() -> None:
    register_func("tests.classic_homes", lambda: 1)
    assert "tests.classic_homes" in list_global_func_names()
    remove_global_func("tests.classic_homes")
    assert "tests.classic_homes" not in list_global_func_names()


def test_containers_are_pythons() -> None:
    for value in ((1, 2), [1], te.placeholder((4, 4)).shape):
        assert isinstance(value, tvm.ir.Array) and not isinstance(value, tvm.ir.Map)
    assert isinstance({}, tvm.ir.Map) and not isinstance("ab", tvm.ir.Array)


def test_kernels_say_how_they_are_called() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    mod = tvm.tir.transform.SplitHostDevice()(tvm.lower(s, [A, B]))
    ways = {f.attrs.get("calling_conv") for f in mod.functions.values()}
    assert tvm.ir.CallingConv.DEVICE_KERNEL_LAUNCH in ways


def test_homes() -> None:
    from tilewright.te.operation import create_prim_func

    assert create_prim_func is te.create_prim_func
    assert tvm.cl(0) == tvm.opencl(0)
    assert tvm.testing.utils.assert_allclose is tvm.testing.assert_allclose
    tvm.testing.utils.install_request_hook(depth=3)
    target, host = tvm.target.Target.check_and_update_host_consist("cuda", "llvm")
    assert target is not None and host is not None and host.kind.name == "llvm"
    np.testing.assert_equal(tvm.testing.utils.IS_IN_CI, tvm.testing.IS_IN_CI)


def test_what_is_absent_says_why() -> None:
    from tilewright._ffi import libinfo
    from tilewright.contrib import spirv

    for absent in (libinfo.find_lib_path, spirv.optimize, tvm.testing.object_use_count):
        with pytest.raises(UnsupportedError, match="is not part of tilewright"):
            absent()
