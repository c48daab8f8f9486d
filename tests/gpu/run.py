"""All tests on a CUDA device, with nothing but Python: `python3 tests/gpu/run.py [names…]`, or `make test-gpu`.

    --target "cuda -arch=sm_90a"    what to build for; by default the device's own architecture

A line for each of them; the exit status is 1 if something failed, 0 also where there is no device.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

here = Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parents[1])]

import tilewright as tvm  # noqa: E402


def main(words: list[str]) -> int:
    target = "cuda"
    if "--target" in words:
        at = words.index("--target")
        target = words[at + 1]
        del words[at : at + 2]
    dev = tvm.cuda(0)
    if not dev.exist:
        try:
            tvm.nd.empty((1,), "float32", dev)
        except ValueError as why:
            print(f"skipped: {why}")
        return 0
    import cuda_data  # noqa: F401  (its checks join the others)
    import cuda_dynamic  # noqa: F401
    import cuda_models  # noqa: F401
    from classic_programs import CLASSIC, CLASSIC_CUDA
    from cuda_checks import CHECKS
    from gpu_programs import PROGRAMS
    from large_tile_programs import LARGE_TILE_PROGRAMS, STREAMED_PROGRAMS
    from row_programs import LONG_ROW_PROGRAMS, ROW_PROGRAMS
    from seed_programs import SEEDS
    from tensor_core_programs import AMPERE_PROGRAMS, BY_HAND, HOPPER_PROGRAMS
    from type_programs import TYPE_PROGRAMS
    from warp_memory_programs import WARP_PROGRAMS

    major = int(str(dev.compute_version).split(".")[0])
    tensor = {**BY_HAND, **(HOPPER_PROGRAMS if major == 9 else {})}
    tensor |= {**AMPERE_PROGRAMS, **WARP_PROGRAMS} if major >= 8 else {}
    work = {f"check {n}": (lambda f=f: f(dev)) for n, f in CHECKS.items()}
    work |= {f"program {n}": (lambda f=f: f().run(target, dev)) for n, f in PROGRAMS.items()}
    work |= {f"tensor cores {n}": (lambda f=f: f().run(target, dev)) for n, f in tensor.items()}
    work |= {
        f"rows {n}": (lambda p=p: p.run(target, dev)) for n, p in (ROW_PROGRAMS | LONG_ROW_PROGRAMS).items()
    }
    if major >= 8:
        large = LARGE_TILE_PROGRAMS | (STREAMED_PROGRAMS if major == 9 else {})
        work |= {f"large tile {n}": (lambda f=f: f().run(target, dev)) for n, f in large.items()}
    work |= {f"type {n}": (lambda f=f: f().run(target, dev)) for n, f in TYPE_PROGRAMS.items()}
    classic = {**CLASSIC, **CLASSIC_CUDA}
    work |= {f"classic {n}": (lambda f=f: f().run(target, dev)) for n, f in classic.items()}
    work |= {f"seed {n}": (lambda f=f: f(target, dev)) for n, f in SEEDS.items()}
    done, failed = 0, []
    for name, run in work.items():
        if words and not any(w in name for w in words):
            continue
        start = time.perf_counter()
        try:
            told = run()
            state = "ok"
        except Exception as error:
            traceback.print_exc()
            told, state = f"{type(error).__name__}: {str(error)[:300]}", "FAILED"
            failed.append(name)
        done += 1
        seconds = time.perf_counter() - start
        print(f"{state:6} {seconds:6.2f} s  {name}{f': {told}' if told else ''}", flush=True)
    print(f"{done - len(failed)} of {done} passed" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
