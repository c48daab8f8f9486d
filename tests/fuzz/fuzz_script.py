"""Scripts and graphs as text."""

from __future__ import annotations

import random
from functools import cache

from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright import relay, te, tir
from tilewright.error import TVMError
from tilewright.relay.testing import mlp
from tilewright.script import from_source

WORDS = """T.evaluate T.exp T.grid T.block T.Buffer T.match_buffer T.alloc_buffer T.allocate T.allocate_const T.int32 T.float32
T.axis.spatial T.axis.remap T.reads T.writes T.init T.where T.func_attr T.block_attr T.attr T.call_extern T.if_then_else T.Cast
T.Select T.Ramp T.Broadcast T.Let T.target T.vectorized T.thread_binding T.launch_thread T.decl_buffer T.handle T.macro
I.module_attrs range len sum list str int map zip max pow round sorted lambda for in if else not and or is None True 0 1 -1 8
1000000000 1e30 "float32" "x" 'S' A B i n vi [ ] ( ) { } , : = == + - * ** // % << >> . .data .shape .dtype .name .tofile
.__class__ .format .join .replace .astype .access_ptr f"{n}" \n \n\x20\x20\x20\x20""".split(" ")
TEXTS = [
    """@T.prim_func
def f(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
    for i, j in T.grid(8, 16):
        with T.block("b"):
            vi, vj = T.axis.remap("SR", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + T.exp(A[vi, vj])
""",
    """@I.ir_module
class M:
    I.module_attrs({"a": 1})
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        p = T.allocate([16], "float32", "global")
        for i in T.parallel(n // 4):
            if i < 3:
                A[i] = T.if_then_else(i > 1, A[i] * T.float32(2), T.float32(0))
            else:
                T.evaluate(T.call_extern("int32", "f", A[i]))
""",
    """SIZES = [2 ** k for k in range(3)]
@T.macro
def twice(x):
    T.evaluate(x)
    T.evaluate(x)
@T.prim_func
def f(A: T.Buffer((4, max(*SIZES)), "float32"), n: T.int32):
    c = T.allocate_const([1, 2, 3], "uint8", [3])
    twice(A[0, len(SIZES) - 1])
    T.evaluate(A.shape[1] + sum([int(s) for s in A.shape[:1]]) + T.min(n, 3))
    T.evaluate(n.astype("int64") if A.dtype == "float32" else (lambda x: x + 1)(n))
""",
]


@cache
def lowered() -> str:
    A = te.placeholder((16, 16), name="A")
    B = te.compute((16, 16), lambda i, j: A[i, j] * 2.0 + i, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, j = sch.get_loops(sch.get_block("B"))
    sch.parallel(i)
    sch.vectorize(sch.split(j, [None, 4])[1])
    return str(sch.mod.script())


def mixed(rng: random.Random, text: str, words: list[str]) -> str:
    """A text with damaged bytes, other words at some places, or lines in another order."""
    for _ in range(rng.randint(1, 3)):
        if not text:
            break
        at = rng.randrange(len(text))
        match rng.randrange(4):
            case 0:
                text = damaged(rng, text.encode()).decode(errors="replace")
            case 1:
                text = text[:at] + rng.choice(words) + text[at:]
            case 2:
                text = (
                    text[:at]
                    + "".join(rng.choices(words, k=rng.randint(1, 4)))
                    + text[at + rng.randrange(12) :]
                )
            case 3:
                lines = text.splitlines(keepends=True)
                first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[first], lines[second] = lines[second], lines[first]
                text = "".join(lines)
    return text


@fuzzer("script", seconds=15, gib=2, short=300, share=3)
def script(rng: random.Random) -> str:
    """Texts of programs, damaged: refused by an error of ours, or a program that can be printed."""
    text = mixed(rng, rng.choice([*TEXTS, lowered()]), WORDS)
    try:
        made = from_source(text)
        str(made)
    except TVMError as error:
        return refused(error)
    return "read"


@cache
def graphs() -> tuple[str, ...]:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    dense = relay.nn.relu(relay.nn.dense(x, w) + relay.const(1.5))
    pair = relay.Tuple([dense, relay.split(x, 2, axis=1)[0]])
    mod, _ = mlp.get_workload(batch_size=1)
    texts = [relay.Function([x, w], dense).astext(), relay.Function([x, w], pair).astext(), mod.astext()]
    return tuple(texts)


GRAPH_WORDS = """%x %w %0 %1 @main def fn let if else ( ) { } [ ] < > , ; : = -> 0 1 -1 1f 2.5f64 3i8 9u 1e400f "a" True None nan
nn.dense nn.relu nn.conv2d add split axis=1 units=4 Tensor[(2, float32] Tensor[(?), int64] meta[relay.Constant][0] #[version
/* */ fn (%x) ref() int8 . .0 .1 { } 99999999999999999999 \n""".split(" ")


@fuzzer("relay_text", seconds=15, gib=2, short=200)
def relay_text(rng: random.Random) -> str:
    """Texts of graphs, damaged: refused by an error of ours, or a graph that can be printed and typed."""
    text = mixed(rng, rng.choice(graphs()), GRAPH_WORDS)
    try:
        made = relay.fromtext(text)
        if rng.randrange(4) == 0:
            made = (
                relay.transform.InferType()(made)
                if isinstance(made, type(relay.parse(graphs()[2])))
                else made
            )
        str(made)
    except TVMError as error:
        return refused(error)
    return "read"
