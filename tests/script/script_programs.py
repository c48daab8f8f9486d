"""Programs of many kinds, written as scripts; the tests print them, read them back and compare."""

from __future__ import annotations

from tilewright.script import ir as I
from tilewright.script import tir as T


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
    T.func_attr({"tir.noalias": True, "layouts": ["NCHW", "OIHW"], "level": 3, "alpha": 0.5, "none": None})
    A = T.match_buffer(a, (128, 64))
    B = T.match_buffer(b, (64, 128))
    C = T.match_buffer(c, (128, 128))
    for i, j, k in T.grid(128, 128, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def conv_padded(
    X: T.Buffer((1, 3, 8, 8), "float32"), W: T.Buffer((4, 3, 3, 3), "float32"), Y: T.Buffer((1, 4, 8, 8))
):
    P = T.alloc_buffer((1, 3, 10, 10))
    for n, c, h, w in T.grid(1, 3, 10, 10):
        with T.block("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            P[vn, vc, vh, vw] = T.if_then_else(
                vh >= 1 and vh < 9 and vw >= 1 and vw < 9, X[vn, vc, vh - 1, vw - 1], T.float32(0)
            )
    for n, f, h, w, c, kh, kw in T.grid(1, 4, 8, 8, 3, 3, 3):
        with T.block("conv"):
            vn, vf, vh, vw, vc, vkh, vkw = T.axis.remap("SSSSRRR", [n, f, h, w, c, kh, kw])
            with T.init():
                Y[vn, vf, vh, vw] = 0
            Y[vn, vf, vh, vw] += P[vn, vc, vh + vkh, vw + vkw] * W[vf, vc, vkh, vkw]


@T.prim_func
def tiled(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
    for io in T.parallel(7):
        for ii in T.vectorized(16):
            with T.block("B"):
                vi = T.axis.spatial(100, io * 16 + ii)
                T.where(io * 16 + ii < 100)
                T.block_attr({"pragma": 1, "factors": [4, 4], "names": {"a": 1}})
                B[vi] = T.tanh(A[vi])


@T.prim_func
def cuda_style(A: T.Buffer((1024,), "float16"), B: T.Buffer((1024,), "float16")):
    for bx in T.thread_binding(8, thread="blockIdx.x"):
        for tx in T.thread_binding(0, 128, thread="threadIdx.x", annotations={"hint": 1}):
            with T.block("copy"):
                v = T.axis.spatial(1024, bx * 128 + tx)
                S = T.alloc_buffer((128,), "float16", scope="shared")
                L = T.alloc_buffer((4,), "int8", scope="local", align=16)
                S[tx] = A[v]
                T.tvm_storage_sync("shared")
                L[0] = T.Cast("int8", S[tx])
                B[v] = S[127 - tx] + T.Cast("float16", L[0])


@T.prim_func
def flat_cuda(A_data: T.handle("float32", "global"), B_data: T.handle("float32", "global")):
    T.func_attr({"calling_conv": 2, "tir.is_global_func": True})
    A = T.Buffer((1024,), data=A_data)
    B = T.Buffer((1024,), data=B_data)
    blockIdx_x = T.launch_thread("blockIdx.x", 8)
    S_data = T.allocate([128], "float32", "shared")
    threadIdx_x = T.launch_thread("threadIdx.x", 128)
    vthread = T.launch_thread("vthread", 2)
    S = T.Buffer((128,), data=S_data, scope="shared")
    S[threadIdx_x] = A[blockIdx_x * 128 + threadIdx_x]
    T.tvm_storage_sync("shared")
    B[blockIdx_x * 128 + threadIdx_x] = S[127 - threadIdx_x] + T.Cast("float32", vthread)


@T.prim_func
def threads_launched_twice(A: T.Buffer((8,), "float32")):
    tx = T.env_thread("threadIdx.x")
    with T.launch_thread(tx, 8):
        A[tx] = T.float32(0)
    with T.launch_thread(tx, 8):
        A[tx] = A[tx] + T.float32(1)


@T.prim_func
def symbolic(a: T.handle, b: T.handle, k: T.int32):
    n, m = T.int32(), T.int64(is_size_var=True)
    A = T.match_buffer(
        a, (n, m), "float32", strides=("s0", "s1"), elem_offset="off", align=128, offset_factor=4
    )
    B = T.match_buffer(b, (n * 2 + 1, T.int64(4)), "int64")
    for i in range(n):
        for j in range(m):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.spatial(m, j)
                B[vi, T.int64(0)] = T.Cast("int64", A[vi, vj]) + T.Cast("int64", k)


@T.prim_func
def vectors(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), M: T.Buffer((4, 16), "int32")):
    for i in range(16):
        A[i * 4 : i * 4 + 4] = B[i * 4 : i * 4 + 4] + T.Broadcast(T.float32(1), 4)
        A[0:64:4] = B[T.Ramp(0, 4, 16)]
        A[T.Ramp(i, -1, 4)] = T.Shuffle([B[0:4], B[4:8]], [7, 6, 1, 0])
        M[0, 0:4] = T.Broadcast(1, 4) if False else 3
        M[1, 4:8] = T.Select(M[1, 0:4] < T.Broadcast(3, 4), T.Ramp(i, 2, 4), T.Broadcast(i, 4))


@T.prim_func
def control(A: T.Buffer((16,), "int32"), n: T.int32) -> T.int32:
    i = T.decl_buffer((1,), "int32", scope="local")
    i[0] = 0
    while i[0] < n and n <= 16:
        if A[i[0]] > 3:
            A[i[0]] = -A[i[0]]
        elif A[i[0]] == 2 or not A[i[0]] < 5:
            A[i[0]] = 7
        else:
            T.evaluate(0)
        i[0] += 1
    assert n >= 0, "n is negative: a 'quoted' \"text\"\n"
    x: T.int32 = n + 1
    y = x * 2
    with T.LetStmt(y) as z:
        A[0] = z
    with T.Assert(y > 0, "y"):
        A[1] = y
    with T.attr(A.data, "storage_alignment", 64):
        A[2] = T.Let(x + y, where={x: 3})
    T.attr(0, "pragma_scope", "fast")
    return x


@T.prim_func
def calls(A: T.Buffer((16,), "float32"), B: T.Buffer((), "float32"), p: T.handle):
    T.call_extern("int32", "cblas_sgemm", A.data, 3, T.float32(1.5))
    T.call_packed("my.function", A, 4)
    T.evaluate(T.call_pure_extern("float32", "f", A[0]))
    T.tvm_struct_set(p, 0, 1, T.tvm_struct_get(p, 0, 2, "int64"))
    T.evaluate(T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 16, 3))
    T.evaluate(T.address_of(A[3]))
    T.evaluate(T.isnullptr(p))
    T.evaluate(T.call_llvm_pure_intrin("float32", "llvm.fma", A[0], A[1], A[2]))
    T.tvm_storage_sync("shared", dtype="void")
    B[()] = T.reinterpret("float32", T.shift_left(T.bitwise_and(T.Cast("int32", A[0]), 255), 3))
    B[()] = T.pow(A[0], T.float32(0.5)) + T.fmod(A[1], A[2]) + T.call_intrin("float32", "tir.isnan", A[3])
    B[()] = T.if_then_else(A[0] < A[1], T.max(A[0], A[1]), T.min(A[1], A[0]))


@T.prim_func
def numbers(
    F: T.Buffer((8,), "float32"),
    D: T.Buffer((8,), "float64"),
    H: T.Buffer((8,), "float16"),
    G: T.Buffer((8,), "bfloat16"),
    E: T.Buffer((8,), "float8_e4m3fn"),
    U: T.Buffer((8,), "uint8"),
    V: T.Buffer((8,), "uint64"),
    J: T.Buffer((8,), "int16"),
    O: T.Buffer((8,), "bool"),
):
    F[0] = T.float32("inf")
    F[1] = T.float32("-inf")
    F[2] = T.float32("nan")
    F[3] = T.float32(-0.0)
    F[4] = 1e-30
    F[5] = T.float32(0.1)
    F[6] = 3.4028234663852886e38
    D[0] = T.float64(1e300)
    D[1] = 16777217.0
    H[0] = T.float16(65504)
    G[0] = T.bfloat16(1.5)
    E[0] = T.float8_e4m3fn(2)
    U[0] = T.uint8(255)
    V[0] = T.uint64(18446744073709551615)
    J[0] = T.int16(-32768)
    O[0] = T.bool(True)
    O[1] = (O[0] and not O[2]) or T.Cast("bool", U[0])
    O[2] = (F[0] < F[1]) == (F[1] < F[2])


@T.prim_func
def integers(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int64"), i: T.int32, j: T.int64):
    A[0] = i - (i - 1) + (i + 2) * 3 // (i % 4 + 5) - 7 * (i // 2) % 3
    A[1] = T.truncdiv(i, 3) + T.truncmod(i, 3) + T.Div(i, i) + T.floordiv(-i, 4)
    A[2] = T.Add(i, 0) + T.Mul(1, i) + T.Sub(3, 1) + T.FloorDiv(7, 2) + T.Min(i, i)
    A[3] = -2147483648
    B[0] = j * T.int64(2) + T.Cast("int64", i) + T.int64(-1)
    B[1] = T.Select(j < T.int64(0), -j, j)


@T.prim_func
def blocks_nested(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
    for io, jo in T.grid(4, 4):
        with T.block("outer"):
            vio, vjo = T.axis.remap("SS", [io, jo])
            A_t = T.match_buffer(
                A[vio * 16 : vio * 16 + 16, vjo * 16 : vjo * 16 + 16],
                (16, 16),
                strides=("s", 1),
                offset_factor=16,
            )
            for i, j in T.grid(16, 16):
                with T.block("inner"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vio * 16 + vi, vjo * 16 + vj] = A_t[vi, vj] * T.float32(2)


@T.prim_func
def block_kinds(A: T.Buffer((16,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        T.reads()
        T.writes(B[0:4])
        T.block_attr({"hint": "x"})
        for i in T.serial(4, annotations={"unroll_explicit": True}):
            for k in T.unroll(1, 5):
                with T.block("sum"):
                    vi = T.axis.opaque(4, i)
                    vk = T.axis.scan((1, 5), k)
                    T.reads(A[vi * 4 : vi * 4 + 4])
                    T.writes(B[vi])
                    B[vi] = B[vi] + A[vi * 4 + vk - 1]


@T.prim_func
def stencil(A: T.Buffer((34,), "float32"), B: T.Buffer((32,), "float32")):
    for i in range(32):
        with T.block("B"):
            v = T.axis.S(32, i)
            B[v] = A[v] + A[v + 1] + A[v + 2]


@T.prim_func
def constants_and_views(A: T.Buffer((4, 4), "float32")):
    A_1 = T.Buffer((16,), data=A.data)
    w = T.allocate_const([1.5, 2.0, -3.0, 1e10], "float32", [4])
    w_1 = T.Buffer((4,), data=w)
    with T.allocate([4], "int32", "local", annotations={"a": 1}) as tmp:  # noqa: SIM117
        with T.decl_buffer((2, 2), "int32", data=tmp, scope="local") as t:
            t[0, 0] = 1
    q = T.allocate([16], "float32", "global", condition=A_1[0] > T.float32(0))
    q_1 = T.decl_buffer((16,), data=q)
    for i in range(4):
        q_1[i] = w_1[i]
        A_1[i] = q_1[i]


@T.prim_func(private=True)
def private_function(x: T.float32) -> T.float32:
    T.evaluate(T.ret(x * T.float32(2)))


@I.ir_module
class module_of_two:
    I.module_attrs({"runtime": "crt", "count": 2})

    @T.prim_func
    def main(A: T.Buffer((8,), "float32")):
        module_of_two.helper(A.data, 3)
        T.evaluate(module_of_two.value(3))

    @T.prim_func(private=True)
    def helper(p: T.handle("float32", "global"), n: T.int32):
        A = T.Buffer((8,), data=p)
        A[n] = T.float32(0)

    @T.prim_func
    def value(n: T.int32) -> T.int32:
        T.func_attr({"global_symbol": "another_name"})
        T.ret(n)


FUNCTIONS = [
    matmul,
    conv_padded,
    tiled,
    cuda_style,
    flat_cuda,
    threads_launched_twice,
    symbolic,
    vectors,
    control,
    calls,
    numbers,
    integers,
    blocks_nested,
    block_kinds,
    stencil,
    constants_and_views,
    private_function,
]
MODULES = [module_of_two]
