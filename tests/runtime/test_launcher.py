"""Calls of compiled functions: what is accepted, and what is refused in which words."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import Build
from native_library import buffer, function, metadata, scalar

from tilewright import runtime
from tilewright.runtime import Module, nd, register_func, remove_global_func
from tilewright.runtime.launcher import NativeFunction, _prototype
from tilewright.runtime.metadata import parse_metadata


def zeros(*shape: int, dtype: str = "float32") -> nd.NDArray:
    return nd.array(np.zeros(shape, dtype))


def refuse(call: Any, kind: type[Exception], text: str, *args: Any) -> None:
    with pytest.raises(kind) as info:
        call(*args)
    assert str(info.value) == text


class TestAccepted:
    def check(self, add: Module, a: Any, b: Any, c: Any) -> None:
        assert add["add"](a, b, c) is None
        np.testing.assert_array_equal(np.asarray(c), np.asarray(a) + np.asarray(b))

    def test_ndarrays_of_several_shapes(self, add: Module) -> None:
        for shape in ((2, 3), (3, 2), (1, 1), (2, 3)):
            values = np.random.default_rng(0).random(shape, "float32")
            self.check(add, nd.array(values), nd.array(values * 2), zeros(*shape))

    def test_numpy_arrays(self, add: Module) -> None:
        a = np.arange(6, dtype="float32").reshape(2, 3)
        self.check(add, a, a, np.empty((2, 3), "float32"))

    def test_torch_tensors(self, add: Module) -> None:
        torch = pytest.importorskip("torch")
        a = torch.arange(6.0).reshape(2, 3)
        self.check(add, a, a, torch.empty(2, 3))
        self.check(add, a[:, :1].clone(), a[:, 0:1].contiguous(), torch.empty(2, 1))

    @pytest.mark.slow
    def test_jax_arrays_for_reading(self, add: Module) -> None:
        jnp = pytest.importorskip("jax.numpy")
        a = jnp.arange(6, dtype="float32").reshape(2, 3)
        self.check(add, a, a, np.empty((2, 3), "float32"))
        refuse(
            add["add"],
            ValueError,
            "add: argument 3 (`C`) is written by the function, got a read-only array; pass a writable copy",
            *(a, a, a),
        )

    def test_anything_with_dlpack(self, add: Module) -> None:
        class Tensor:
            def __init__(self, values: Any) -> None:
                self.values = values

            def __dlpack__(self, **options: Any) -> Any:
                return self.values.__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return self.values.__dlpack_device__()

        c = np.zeros((2, 3), "float32")
        add(Tensor(np.ones((2, 3), "float32")), Tensor(np.ones((2, 3), "float32")), Tensor(c))
        assert (c == 2).all()

    def test_mixed(self, add: Module) -> None:
        a = np.ones((2, 2), "float32")
        self.check(add, nd.array(a), a, zeros(2, 2))

    def test_empty_arrays(self, add: Module) -> None:
        self.check(add, zeros(0, 3), zeros(0, 3), zeros(0, 3))
        torch = pytest.importorskip("torch")
        empty = torch.empty(0, 3)
        add(empty, empty, empty)

    def test_dimensions_of_size_one_have_free_strides(self, add: Module) -> None:
        wide = np.ones((4, 8), "float32")
        self.check(add, wide[:1], wide[2:3], np.empty((1, 8), "float32"))
        self.check(
            add, np.ones((4, 1), "float32", order="F"), wide[:, :1].copy(), np.zeros((4, 1), "float32")
        )


class TestRefused:
    def test_arity(self, add: Module) -> None:
        text = "add(A, B, C) takes 3 arguments, got 2"
        refuse(add["add"], TypeError, text, zeros(1, 1), zeros(1, 1))
        refuse(add["add"].bind, TypeError, text, zeros(1, 1), zeros(1, 1))

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (None, "NoneType"),
            (3, "int (3)"),
            ([1.0, 2.0], "list ([1.0, 2.0])"),
            ("x", "str ('x')"),
            (np.float32(1), "float32 (np.float32(1.0))"),
        ],
    )
    def test_what_is_no_array(self, add: Module, given: Any, text: str) -> None:
        refuse(
            add["add"],
            TypeError,
            f"add: argument 2 (`B`) must be an array float32[m, n], got {text}",
            *(zeros(1, 1), given, zeros(1, 1)),
        )

    def test_dtype(self, add: Module) -> None:
        text = "add: argument 2 (`B`) must have dtype float32, got {}; convert it first"
        one = zeros(1, 1)
        for given in ("float64", "float16", "int32"):
            refuse(add["add"], TypeError, text.format(given), one, zeros(1, 1, dtype=given), one)
        refuse(add["add"], TypeError, text.format(">f4"), one, np.zeros((1, 1), ">f4"), one)

    def test_rank(self, add: Module) -> None:
        refuse(
            add["add"],
            ValueError,
            "add: argument 1 (`A`) must have 2 dimensions (float32[m, n]), got 1 dimension: shape (4,)",
            *(zeros(4), zeros(1, 4), zeros(1, 4)),
        )

    def test_sizes_that_disagree(self, add: Module) -> None:
        refuse(
            add["add"],
            ValueError,
            "add: argument 2 (`B`) must have shape float32[m, n], got shape (4, 5): "
            "dimension 1 is 5, expected n = 4 (dimension 1 of argument 1, `A`)",
            *(zeros(4, 4), zeros(4, 5), zeros(4, 4)),
        )

    def test_strides(self, add: Module) -> None:
        given = np.zeros((4, 8), "float32")[:, ::2]
        refuse(
            add["add"],
            ValueError,
            "add: argument 1 (`A`) must be dense row-major, got an array of shape (4, 4) "
            "with strides (8, 2) in elements; pass a contiguous copy",
            *(given, zeros(4, 4), zeros(4, 4)),
        )
        odd = np.zeros(3, np.dtype([("a", "u1"), ("b", "f4")]))["b"].reshape(3, 1)
        refuse(
            add["add"],
            ValueError,
            "add: argument 1 (`A`) cannot be used: strides of (5, 5) bytes are not whole elements of 4 bytes",
            *(odd, zeros(3, 1), zeros(3, 1)),
        )

    def test_read_only_output(self, add: Module) -> None:
        frozen = np.zeros((1, 1), "float32")
        frozen.flags.writeable = False
        add(frozen, frozen, zeros(1, 1))
        refuse(
            add["add"],
            ValueError,
            "add: argument 3 (`C`) is written by the function, got a read-only array; pass a writable copy",
            *(zeros(1, 1), zeros(1, 1), frozen),
        )

    def test_natural_alignment(self, add: Module) -> None:
        raw = np.zeros(4 * 4 + 1, "uint8")
        start = 1 if raw.ctypes.data % 4 == 0 else 0
        odd = raw[start : start + 16].view("float32").reshape(2, 2)
        with pytest.raises(
            ValueError, match=r"argument 2 \(`B`\) must be aligned to 4 bytes, got address 0x"
        ):
            add(zeros(2, 2), odd, zeros(2, 2))

    def test_device(self, add: Module) -> None:
        x = zeros(1, 1)
        layout = runtime.ndarray.layout_of("float32", (1, 1), None, 2, 1)
        elsewhere = runtime.ndarray._make(layout, x.data_ptr, None)
        refuse(
            add["add"],
            ValueError,
            "add: argument 2 (`B`) must be on device cpu, got an array on cuda(1); copy it there first",
            *(x, elsewhere, x),
        )

    def test_torch_tensors_that_are_not_plain(self, add: Module) -> None:
        torch = pytest.importorskip("torch")
        good = torch.zeros(2, 2)
        cases = [
            (torch.zeros(2, 2, requires_grad=True), "requires a gradient"),
            (torch.zeros(2, 2).to_sparse(), "layout torch.sparse_coo"),
            (torch.empty(2, 2, device="meta"), "'meta', which has no memory"),
            (torch.zeros(2, 2, dtype=torch.complex64).conj().imag, "lazy negative"),
        ]
        for bad, text in cases:
            with pytest.raises(ValueError, match=rf"add: argument 1 \(`A`\) cannot be used: .*{text}"):
                add(bad, good, good)

    def test_null(self, add: Module) -> None:
        class Null:
            def __dlpack__(self, **_: Any) -> Any:
                import ctypes

                from tilewright.runtime import dlpack

                capsule = np.zeros((2, 2), "float32").__dlpack__()
                address = dlpack._capsule_pointer(capsule, b"dltensor")
                dlpack._Managed.from_address(address).dl_tensor.data = ctypes.c_void_p(None)
                return capsule

        refuse(
            add["add"],
            ValueError,
            "add: argument 1 (`A`) cannot be used: "
            "the tensor's data pointer is null although its shape is (2, 2)",
            *(Null(), zeros(2, 2), zeros(2, 2)),
        )

    def test_nothing_ran(self, add: Module) -> None:
        c = zeros(2, 2)
        with pytest.raises(ValueError, match="dimension 0 is 3"):
            add(nd.array(np.ones((2, 2), "float32")), zeros(3, 2), c)
        assert not c.numpy().any()


class TestSizes:
    def test_constant_and_derived_dimensions(self, build: Build) -> None:
        dims = [["+", ["*", "n", 2], 1], ["max", ["//", "n", 2], ["-", "n", 3]], ["min", ["%", "n", 4], 7], 2]
        mod = build(
            "int32_t f(float* A, float* B, int32_t n) { *A = n; return 0; }",
            [function("f", [buffer("A", "float32", ["n", 3]), buffer("B", "float32", dims)], ("n",))],
        )
        a = zeros(5, 3)
        mod(a, zeros(11, 2, 1, 2))
        assert a[0, 0] == 5
        head = "f: argument 2 (`B`) must have shape "
        head += "float32[(n * 2) + 1, max(n // 2, n - 3), min(n % 4, 7), 2], got shape "
        where = "(n = 5: dimension 0 of argument 1, `A`)"
        for shape, text in [
            ((10, 2, 1, 2), f"(10, 2, 1, 2): dimension 0 is 10, expected (n * 2) + 1 = 11 {where}"),
            ((11, 3, 1, 2), f"(11, 3, 1, 2): dimension 1 is 3, expected max(n // 2, n - 3) = 2 {where}"),
            ((11, 2, 2, 2), f"(11, 2, 2, 2): dimension 2 is 2, expected min(n % 4, 7) = 1 {where}"),
            ((11, 2, 1, 1), "(11, 2, 1, 1): dimension 3 is 1, expected 2"),
        ]:
            refuse(mod, ValueError, head + text, a, zeros(*shape))
        refuse(
            mod,
            ValueError,
            "f: argument 1 (`A`) must have shape float32[n, 3], got shape (5, 4): "
            "dimension 1 is 4, expected 3",
            *(zeros(5, 4), zeros(11, 2, 1, 2)),
        )

    def test_a_symbol_found_later_than_used(self, build: Build) -> None:
        mod = build(
            "int32_t f(float* A, float* B, int32_t n) { *B = n; return 0; }",
            [function("f", [buffer("A", "float32", [["*", "n", 2]]), buffer("B", "float32", ["n"])], ("n",))],
        )
        b = zeros(3)
        mod(zeros(6), b)
        assert b[0] == 3
        with pytest.raises(ValueError, match=r"dimension 0 is 5, expected n \* 2 = 6"):
            mod(zeros(5), b)

    def test_division_by_a_size_of_zero(self, build: Build) -> None:
        mod = build(
            "int32_t f(float* A, float* B, int32_t n) { return 0; }",
            [
                function(
                    "f", [buffer("A", "float32", ["n"]), buffer("B", "float32", [["//", 8, "n"]])], ("n",)
                )
            ],
        )
        mod(zeros(2), zeros(4))
        refuse(
            mod,
            ValueError,
            "f: argument 2 (`B`): dimension 0 is 8 // n, which divides by zero for n = 0",
            *(zeros(0), zeros(4)),
        )

    def test_strides_as_symbols(self, build: Build) -> None:
        mod = build(
            """int32_t f(float* A, float* B, int32_t m, int32_t n, int32_t s) {
                 for (int i = 0; i < m; ++i) for (int j = 0; j < n; ++j) B[i * n + j] = A[i * s + j];
                 return 0; }""",
            [
                function(
                    "f",
                    [
                        buffer("A", "float32", ["m", "n"], "r", strides=["s", 1]),
                        buffer("B", "float32", ["m", "n"], "w"),
                    ],
                    ("m", "n", "s"),
                )
            ],
        )
        whole = np.arange(12, dtype="float32").reshape(3, 4)
        b = zeros(3, 2)
        mod(whole[:, 1:3], b)
        np.testing.assert_array_equal(b.numpy(), whole[:, 1:3])
        mod(whole[:, :2].copy(), b)
        np.testing.assert_array_equal(b.numpy(), whole[:, :2])
        refuse(
            mod,
            ValueError,
            "f: argument 1 (`A`) must have strides [s, 1] in elements, got (4, 2): stride 1 is 2, expected 1",
            *(whole[:, ::2], b),
        )
        mod(whole[:, ::4], zeros(3, 1))  # one column: the step along it is never taken

    def test_a_size_beyond_its_type(self, build: Build) -> None:
        mod = build(
            "int32_t f(int8_t* A, int8_t n) { return 0; }",
            [function("f", [buffer("A", "int8", ["n"])]) | {"symbols": [{"name": "n", "dtype": "int8"}]}],
        )
        mod(zeros(127, dtype="int8"))
        refuse(
            mod,
            ValueError,
            "f: argument 1 (`A`): shape 0 is 128, too large for the size n of type int8",
            zeros(128, dtype="int8"),
        )

    def test_shapes_over_scalar_parameters(self, build: Build) -> None:
        mod = build(
            "int32_t f(float* A, int32_t n) { for (int i = 0; i < n; ++i) A[i] = n; return 0; }",
            [function("f", [buffer("A", "float32", ["n"]), scalar("n", "int32")])],
        )
        a = zeros(3)
        mod(a, 3)
        assert a[2] == 3
        for wrong in (2, 4):
            refuse(
                mod,
                ValueError,
                "f: argument 1 (`A`) must have shape float32[n], got shape (3,): "
                f"dimension 0 is 3, expected n = {wrong} (argument 2)",
                *(a, wrong),
            )

    def test_more_shapes_than_are_remembered(self, add: Module) -> None:
        for n in range(600):
            c = zeros(1, n)
            add(c, c, c)
        with pytest.raises(ValueError, match="dimension 1 is 2"):
            add(zeros(1, 1), zeros(1, 2), zeros(1, 1))

    def test_required_alignment(self, build: Build) -> None:
        mod = build(
            "int32_t f(float* A, float* B, int32_t n) { return 0; }",
            [
                function(
                    "f",
                    [buffer("A", "float32", ["n"], align=64), buffer("B", "float32", ["n"], align=64)],
                    ("n",),
                )
            ],
        )
        mod(zeros(4), zeros(4))
        shifted = np.asarray(zeros(20))[4:8]
        with pytest.raises(
            ValueError, match=r"argument 2 \(`B`\) must be aligned to 64 bytes.*aligned to 16"
        ):
            mod(zeros(4), shifted)
        with pytest.raises(ValueError, match=r"argument 2 \(`B`\) must be aligned to 64 bytes"):
            mod(zeros(4), nd.numpyasarray(shifted))
        mod(zeros(0), np.asarray(zeros(20))[4:4])


SCALARS = """
int32_t f(double* out, int8_t a, uint64_t b, float c, double d, uint8_t e, uint16_t h, void* p) {
  out[0] = a; out[1] = (double)b; out[2] = c; out[3] = d; out[4] = e; out[5] = h; out[6] = p ? 1 : 0;
  return 0;
}
"""


class TestScalars:
    @pytest.fixture
    def mod(self, build: Build) -> Module:
        params = [
            buffer("out", "float64", [7], "w"),
            scalar("a", "int8"),
            scalar("b", "uint64"),
            scalar("c", "float32"),
            scalar("d", "float64"),
            scalar("e", "bool"),
            scalar("h", "float16"),
            scalar("p", "handle"),
        ]
        return build(SCALARS, [function("f", params)])

    def test_values(self, mod: Module) -> None:
        out = zeros(7, dtype="float64")
        one = int(np.float16(1).view("uint16"))
        mod(out, -5, 2**63, 1.5, 2.5, True, 1.0, out)
        np.testing.assert_array_equal(out.numpy(), [-5, 2.0**63, 1.5, 2.5, 1, one, 1])
        mod(out, np.int64(7), np.uint8(3), 2, np.float32(4), False, np.float16(1), None)
        np.testing.assert_array_equal(out.numpy(), [7, 3, 2, 4, 0, one, 0])
        mod(out, nd.array(np.int8(9)), True, nd.array(np.float32(0.5)), 1, 1, ml_dtypes.bfloat16(1), 0)
        np.testing.assert_array_equal(out.numpy(), [9, 1, 0.5, 1, 1, one, 0])

    @pytest.mark.parametrize(
        ("position", "given", "kind", "text"),
        [
            (1, 128, ValueError, "f: argument 2 (`a`) is 128, but int8 holds only -128 to 127"),
            (2, -1, ValueError, "f: argument 3 (`b`) is -1, but uint64 holds only 0 to 18446744073709551615"),
            (1, 1.0, TypeError, "f: argument 2 (`a`) must be a number of type int8, got float (1.0)"),
            (3, "x", TypeError, "f: argument 4 (`c`) must be a number of type float32, got str ('x')"),
            (4, None, TypeError, "f: argument 5 (`d`) must be a number of type float64, got NoneType"),
            (5, 2, TypeError, "f: argument 6 (`e`) must be a number of type bool, got int (2)"),
            (
                *(7, 1.5, TypeError),
                "f: argument 8 (`p`) must be a handle: "
                "an address, None, a ctypes pointer or an array, got float",
            ),
        ],
    )
    def test_refused(self, mod: Module, position: int, given: Any, kind: Any, text: str) -> None:
        args: list[Any] = [zeros(7, dtype="float64"), 1, 1, 1.0, 1.0, True, 1.0, None]
        args[position] = given
        refuse(mod, kind, text, *args)

    def test_results(self, build: Build) -> None:
        mod = build(
            """int32_t i(int32_t a, int32_t* r) { *r = a * 2; return 0; }
               int32_t d(double a, double* r) { *r = a / 2; return 0; }
               int32_t n(float* A, int64_t n, int64_t* r) { *r = n; return 0; }""",
            [
                function("i", [scalar("a", "int32")], ret="int32"),
                function("d", [scalar("a", "float64")], ret="float64"),
                function("n", [buffer("A", "float32", ["n"])], ret="int64")
                | {"symbols": [{"name": "n", "dtype": "int64"}]},
            ],
        )
        assert mod["i"](-21) == -42
        assert mod["d"](5.0) == 2.5
        assert mod["n"](zeros(3)) == 3
        assert mod["n"].bind(zeros(4))() == 4

    def test_results_of_small_types(self, build: Build) -> None:
        mod = build(
            """int32_t h(uint16_t* r) { *r = 0x3e00; return 0; }
               int32_t b(uint8_t* r) { *r = 1; return 0; }
               int32_t p(void** r) { *r = (void*)64; return 0; }""",
            [
                function("h", [], ret="float16"),
                function("b", [], ret="bool"),
                function("p", [], ret="handle"),
            ],
        )
        assert mod["h"]() == mod["h"].bind()() == 1.5
        assert mod["b"]() is True
        assert mod["p"]() == 64


class TestFailure:
    CODES = """
    int32_t f(int32_t code) {
      return code ? failed(code, "Assert fail: 3 < 2, index out of bounds") : 0;
    }"""

    def test_codes(self, build: Build) -> None:
        mod = build(self.CODES, [function("f", [scalar("code", "int32")])])
        mod(0)
        text = "f: Assert fail: 3 < 2, index out of bounds"
        refuse(mod, runtime.TVMError, text, 1)
        refuse(mod, MemoryError, text, 4)
        refuse(mod, runtime.TVMError, text, 77)
        refuse(mod["f"].bind(1), runtime.TVMError, text)
        with pytest.raises(runtime.TVMError):
            mod.time_evaluator("f")(1)
        mod(0)

    def test_without_a_text(self, build: Build) -> None:
        mod = build("int32_t f(void) { return 9; }", [function("f", [])])
        refuse(mod, runtime.TVMError, "f: compiled code failed (code 9)")


PACKED = """
packed_t __tw_packed_call = 0;
int32_t call(float* A, int64_t n) {
  int64_t shape[1] = {n};
  struct { void* data; int32_t type, id; int32_t ndim; uint8_t code, bits; uint16_t lanes;
           int64_t* shape; int64_t* strides; uint64_t offset; } tensor =
    {A, 1, 0, 1, 2, 32, 1, shape, 0, 0};
  TWValue args[6], ret; int32_t codes[6] = {7, 0, 2, 11, 4, 1}, kind = -1;
  args[0].p = &tensor; args[1].i = -3; args[2].f = 2.5; args[3].s = "text"; args[4].p = 0; args[5].i = -1;
  if (!__tw_packed_call) return failed(3, "no runtime");
  int32_t code = __tw_packed_call("test.packed", args, codes, 6, &ret, &kind);
  if (code) return code;
  A[1] = kind;
  if (kind == 0) A[2] = ret.i; else if (kind == 2) A[2] = ret.f; else if (kind == 11) A[2] = strlen(ret.s);
  return 0;
}
#include <pthread.h>
static void* worker(void* A) { return (void*)(intptr_t)call(A, 4); }
int32_t threaded(float* A, int64_t n) {
  pthread_t t; void* code;
  pthread_create(&t, 0, worker, A); pthread_join(t, &code);
  return (int32_t)(intptr_t)code;
}
"""


class TestPackedCalls:
    @pytest.fixture
    def mod(self, build: Build) -> Any:
        size = {"symbols": [{"name": "n", "dtype": "int64"}]}
        params = [buffer("A", "float32", ["n"])]
        yield build(PACKED, [function("call", params) | size, function("threaded", params) | size])
        remove_global_func("test.packed")

    def test_arguments(self, mod: Module) -> None:
        seen: list[Any] = []

        def packed(tensor: nd.NDArray, *rest: Any) -> None:
            seen.append((tensor.shape, tensor.dtype, tensor.device, *rest))
            tensor[0] = 42

        register_func("test.packed", packed)
        a = zeros(4)
        mod["call"](a)
        assert seen == [((4,), "float32", runtime.cpu(), -3, 2.5, "text", None, 2**64 - 1)]
        np.testing.assert_array_equal(a.numpy(), [42, 4, 0, 0])

    @pytest.mark.parametrize(
        ("result", "kind", "value"),
        [
            (7, 0, 7),
            (True, 0, 1),
            (-2.5, 2, -2.5),
            ("four", 11, 4),
            (np.int8(-3), 0, -3),
            (np.float32(0.5), 2, 0.5),
        ],
    )
    def test_results(self, mod: Module, result: Any, kind: int, value: float) -> None:
        register_func("test.packed", lambda *_: result)
        a = zeros(4)
        mod["call"](a)
        assert (a[1], a[2]) == (kind, value)

    def test_a_result_of_a_wrong_kind(self, mod: Module) -> None:
        register_func("test.packed", lambda *_: [1])
        refuse(
            mod["call"],
            TypeError,
            "global function 'test.packed' returned list; "
            "compiled code takes None, a bool, an int, a float or a str",
            zeros(4),
        )

    @pytest.mark.parametrize("name", ["call", "threaded"])
    def test_the_exception_comes_back_as_it_was(self, mod: Module, name: str) -> None:
        class Own(Exception):
            pass

        raised = Own("inside")

        def packed(*_: Any) -> None:
            raise raised

        register_func("test.packed", packed)
        with pytest.raises(Own) as info:
            mod[name](zeros(4))
        assert info.value is raised
        assert any(entry.name == "packed" for entry in info.traceback)
        register_func("test.packed", lambda *_: 0, override=True)
        mod[name](zeros(4))

    def test_an_interrupt_is_not_lost(self, mod: Module) -> None:
        def packed(*_: Any) -> None:
            raise KeyboardInterrupt

        register_func("test.packed", packed)
        with pytest.raises(KeyboardInterrupt):
            mod["call"](zeros(4))

    def test_each_thread_gets_its_own_exception(self, mod: Module) -> None:
        barrier = threading.Barrier(4)
        wrong: list[str] = []

        def packed(tensor: nd.NDArray, *_: Any) -> None:
            number = int(tensor[3])
            barrier.wait()
            raise ValueError(number)

        def work(number: int) -> None:
            for _ in range(5):
                try:
                    mod["call"](nd.array(np.full(4, number, "float32")))
                    wrong.append("nothing raised")
                except ValueError as error:
                    if error.args != (number,):
                        wrong.append(f"{error.args} for {number}")

        register_func("test.packed", packed)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_a_function_that_is_not_registered(self, mod: Module) -> None:
        refuse(
            mod["call"],
            runtime.TVMError,
            "compiled code calls the global function 'test.packed', which is not registered; "
            "register it with @register_func('test.packed') before the call",
            zeros(4),
        )

    def test_compiled_code_calling_compiled_code(self, mod: Module, add: Module) -> None:
        def packed(tensor: nd.NDArray, *_: Any) -> None:
            row = tensor.reshape(1, 4)
            add(row, row, row)

        register_func("test.packed", packed)
        a = nd.array(np.full(4, 3, "float32"))
        mod["call"](a)
        assert (a[0], a[3]) == (6, 6)


class TestLifeAndCost:
    @pytest.mark.slow
    def test_a_function_keeps_its_library(self, build: Build) -> None:
        mod = build("int32_t f(int32_t a, int32_t* r) { *r = a + 1; return 0; }",
                    [function("f", [scalar("a", "int32")], ret="int32")])  # fmt: skip
        gone = weakref.ref(mod._library)
        f = mod["f"]
        raw, bound = f._call, f.bind(4)
        del mod, f
        gc.collect()
        assert raw(1) == 2
        assert bound() == 5
        del raw
        gc.collect()
        assert gone() is not None
        assert bound() == 5
        del bound
        gc.collect()
        assert gone() is None

    def test_nothing_waits_for_the_garbage_collector(self, build: Build) -> None:
        mod = build("int32_t f(void) { return 0; }", [function("f", [])])
        gone = weakref.ref(mod._library)
        gc.disable()
        try:
            mod()
            del mod
            assert gone() is None
        finally:
            gc.enable()

    def test_bound_arguments_are_kept(self, add: Module) -> None:
        c = np.zeros((1, 2), "float32")
        f = add["add"]
        assert isinstance(f, NativeFunction)
        bound = f.bind(np.ones((1, 2), "float32"), np.full((1, 2), 2, "float32"), c)
        gc.collect()
        bound()
        assert (c == 3).all()
        with pytest.raises(ValueError, match="dimension 0 is 2"):
            f.bind(zeros(1, 1), zeros(2, 1), zeros(1, 1))

    def test_names(self, add: Module) -> None:
        f = add["add"]
        assert repr(f) == "<compiled function add(A, B, C)>"
        assert f.name == "add"
        assert add["add"] is f

    def test_calls_release_the_interpreter(self, build: Build) -> None:
        """Four calls wait for each other, which they could not if one kept the interpreter."""
        code = """
            #include <unistd.h>
            static int inside;
            int32_t f(void) {
                __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
                for (int turn = 0; __atomic_load_n(&inside, __ATOMIC_SEQ_CST) < 4; turn++) {
                    if (turn == 60000) return 1;
                    usleep(1000);
                }
                return 0;
            }
        """
        mod, ended = build(code, [function("f", [])]), []
        threads = [threading.Thread(target=lambda: ended.append(mod())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ended) == 4  # a call that had waited in vain would have raised


def test_more_arguments_than_a_call_takes() -> None:
    params = [buffer(f"B{k}", "float32", [4]) for k in range(1025)]
    info = parse_metadata(metadata([function("f", params)]), "here").functions["f"]
    with pytest.raises(runtime.TVMError, match=r"f takes 1,025 arguments.* takes 1,024 at most"):
        _prototype(info)
