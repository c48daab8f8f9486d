"""Files of parameters."""

from __future__ import annotations

import random

import numpy as np

from fuzz import fuzzer
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
    except TVMError:
        return "refused"
    for array in read.values():
        array.numpy().sum()
    return "read"
