"""Programs as JSON."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import tilewright as tvm
from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright import te, tir, topi
from tilewright.error import TVMError
from tilewright.ir.serialize import load_json, node_classes, save_json


@cache
def programs() -> tuple[str, ...]:
    A, B = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    made = [
        te.create_prim_func([A, B, topi.matmul(A, B)]),
        te.create_prim_func([A, topi.nn.softmax(A)]),
        te.create_prim_func([A, topi.nn.relu(topi.sum(A, 1))]),
    ]
    sch = tir.Schedule(made[0])
    i, j, k = sch.get_loops(sch.get_block("T_matmul"))
    sch.parallel(i)
    sch.vectorize(sch.split(j, [None, 4])[1])
    with tvm.target.Target("llvm"):
        low = tvm.lower(sch.mod)
    return tuple(map(save_json, [*made, sch.mod, low]))


def changed(rng: random.Random, data: Any) -> None:
    """Other values at some places of well-formed JSON: another node, another kind, another number."""
    nodes = data["nodes"]
    for _ in range(rng.randint(1, 3)):
        node = rng.choice(nodes)
        at = rng.randrange(len(node))
        match rng.randrange(8):
            case 0:
                node[0] = rng.choice(sorted(node_classes()))
            case 1:
                node[at] = {"node": rng.randrange(-1, len(nodes) + 1)}
            case 2:
                node[at] = rng.choice(
                    [None, True, 0, -1, 1, 7, 2**70, 1.5, "", "x", "float32", [], {}, [1, 2]]
                )
            case 3:
                node[at] = rng.choice(nodes)[rng.randrange(1)]
            case 4:
                other = rng.choice(nodes)
                node[at] = other[rng.randrange(len(other))]
            case 5:
                del node[at]
            case 6:
                node[at] = {
                    "dtype": rng.choice(["int8", "bool", "float32x4", "handle", "float64", "x", "int0"])
                }
            case 7:
                node[at] = [node[at], {"node": rng.randrange(len(nodes))}]


@fuzzer("ir_json", seconds=10, gib=2, short=500, share=3)
def ir_json(rng: random.Random) -> str:
    """Programs in JSON with damaged bytes: refused by an error of ours, or a program that can be printed."""
    data = damaged(rng, rng.choice(programs()).encode())
    try:
        made = load_json(data.decode(errors="surrogateescape"))
        str(made)
    except TVMError as error:
        return refused(error)
    return "read"


@fuzzer("ir_json_built", seconds=60, gib=3, short=40)
def ir_json_built(rng: random.Random) -> str:
    """Well-formed JSON with nodes of other kinds: refused when it is read, or when it is built, by an error of ours."""
    data = json.loads(rng.choice(programs()))
    changed(rng, data)
    try:
        made = load_json(json.dumps(data))
    except TVMError as error:
        return refused(error)
    try:
        tvm.build(made, target="llvm")
    except TVMError as error:
        return refused(error, "refused when built")
    return "built"
