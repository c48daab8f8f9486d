"""Ways to damage a file."""

from __future__ import annotations

import random


def damaged(rng: random.Random, data: bytes, most: int = 4) -> bytes:
    """The bytes with one to `most` damages: bytes changed, removed, doubled or inserted, ends cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, most)):
        if not out:
            break
        at = rng.randrange(len(out))
        size = min(len(out) - at, rng.choice((1, 1, 2, 4, 8, 64)))
        match rng.randrange(7):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + size] = rng.randbytes(size)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case 4:
                out[at:at] = rng.randbytes(size)
            case 5:
                del out[at:]
            case 6:
                out[at : at + size] = rng.choice((b"\0", b"\xff", b"\x7f", b"[", b"-", b"9")) * size
    return bytes(out)
