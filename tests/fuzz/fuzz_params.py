"""Files of parameters."""

from __future__ import annotations

import json
import random
import struct

import numpy as np

from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright import relay
from tilewright.error import TVMError


@fuzzer("params", seconds=10, short=200)
def params(rng: random.Random) -> str:
    """Damaged files of parameters are refused by an error of ours, or read as arrays."""
    kinds = ["float32", "int64", "bool", "float16", "uint8"]
    arrays = {
        f"p{i}": np.zeros([rng.randrange(4) for _ in range(rng.randrange(4))], rng.choice(kinds))
        for i in range(rng.randrange(1, 5))
    }
    data = damaged(rng, bytes(relay.save_param_dict(arrays)))
    try:
        read = relay.load_param_dict(data)
    except TVMError as error:
        return refused(error)
    for array in read.values():
        array.numpy().sum()
    return "read"


@fuzzer("param_headers", seconds=10, gib=2, short=200)
def param_headers(rng: random.Random) -> str:
    """Well-formed headers that say something else: refused by an error of ours, or read as arrays."""
    odd = [
        0,
        1,
        -1,
        4,
        2**31,
        2**62,
        2**63,
        2**70,
        1.5,
        True,
        None,
        "F32",
        "BOOL",
        [],
        [1] * 100,
        {},
        "[" * 1000,
    ]
    entry = {
        "dtype": "F32",
        "shape": [rng.choice(odd[:8]) for _ in range(rng.randrange(4))],
        "data_offsets": [0, 16],
    }
    for _ in range(rng.randrange(3)):
        entry[rng.choice(sorted(entry))] = rng.choice([*odd, [rng.choice(odd), rng.choice(odd)]])
    header = json.dumps({"x": entry, "__metadata__": rng.choice(odd)}).encode()
    if rng.randrange(8) == 0:
        header = rng.choice((b"[", b'{"a":')) * 100_000
    try:
        read = relay.load_param_dict(struct.pack("<Q", len(header)) + header + bytes(rng.choice((0, 16, 64))))
    except TVMError as error:
        return refused(error)
    for array in read.values():
        array.numpy().sum()
    return "read"
