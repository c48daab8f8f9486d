"""`tilewright calibrate`: measure the machine that it runs on, and keep its figures where targets find them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.build import build
from ..ir.errors import TargetError
from ..runtime.devices import cpu, cuda
from ..runtime.ndarray import array
from ..target import Target
from ..target.calibration import Calibration, folder, keep, read
from ..target.cpu_fit import FIT
from ..target.measure import calibrate_cpu
from ..tune import cpu_calibrate
from ..tune.gpu_calibrate import Found, Probe, calibrated_figures, probes_of
from ..tune.space import Decisions, Sketches
from ..tune.workload import task_of
from .command_line import Desk

if TYPE_CHECKING:
    from .app import Calibrate

_DEVICES = ("all", "cpu", "cuda")
_UNITS = {
    "clock": "GHz", "memory_bandwidth": "GB/s", "memory_bandwidth_all": "GB/s", "memory_latency": "ns",
    "launch_us": "us", "bandwidth": "GB/s", "tile.launch_seconds": "s",
}  # fmt: skip


def calibrate_command(desk: Desk, given: Calibrate) -> None:
    """Measure, show or remove the figures of this machine."""
    device, rounds = given.device, given.rounds
    if device not in _DEVICES:
        raise TargetError(f"--device is one of {', '.join(_DEVICES)}, not {device!r}")
    if given.show and given.remove:
        raise TargetError("--show and --remove are two commands: give one of them")
    kinds = ("cpu", "cuda") if device == "all" else (device,)
    paths = [p for kind in kinds for p in sorted(folder().glob(f"{kind}-*.json"))]
    if given.show:
        return _show(desk, paths)
    if given.remove:
        for path in paths:
            path.unlink()
        told = "\n".join(f"removed {p}" for p in paths) or f"there is no calibration in {folder()}"
        return desk.result({"removed": list(map(str, paths))}, told)
    if device == "cuda" and not cuda(0).exist:
        raise TargetError("there is no CUDA device to calibrate; `--device cpu` measures the processor")
    found = []
    start = time.perf_counter()
    if "cpu" in kinds:
        found.append(_cpu(desk, rounds))
    if "cuda" in kinds and cuda(0).exist:
        found.append(_gpu(desk, rounds))
    elif "cuda" in kinds:
        desk.note("there is no CUDA device: the processor alone was measured")
    paths = [keep(one) for one in found]
    data = {str(p): _data(one) for p, one in zip(paths, found, strict=True)}
    seconds = time.perf_counter() - start
    text = "\n".join(
        [*(f"wrote {p}" for p in paths), f"took {seconds:.1f} s; targets use these figures from now on"]
    )
    return desk.result({"calibrations": data, "seconds": round(seconds, 2)}, text)


def _data(one: Calibration) -> dict[str, Any]:
    return {"kind": one.kind, "machine": dict(one.machine), "figures": dict(one.figures)}


def _show(desk: Desk, paths: list[Path]) -> None:
    """Print the stored figures; a file that cannot be read is listed with the reason."""
    data: dict[str, Any] = {}
    lines = []
    for path in paths:
        lines.append(str(path))
        try:
            one = read(path)
        except TargetError as error:
            data[str(path)] = {"error": str(error)}
            lines.append(f"  not used: {error}")
            continue
        data[str(path)] = _data(one)
        lines += [
            f"  {name:<30} {value:g} {_UNITS.get(name, '')}".rstrip() for name, value in one.figures.items()
        ]
    nothing = f"there is no calibration in {folder()}; `tilewright calibrate` makes one"
    desk.result({"calibrations": data}, "\n".join(lines) or nothing)


# -- processors -----------------------------------------------------------------------------------
def _cpu(desk: Desk, rounds: int) -> Calibration:
    desk.note(f"measuring the processor ({Target('llvm').cpu.cpu})")

    def tell(name: str, value: float) -> None:
        known = not math.isnan(value)
        desk.note(f"  {name:<24} {value:g} {_UNITS.get(name, '')}".rstrip() if known else f"  {name}")

    found = calibrate_cpu(rounds, tell)
    known = Target("llvm -num-cores=1").with_machine(dict(found.figures))
    total = sum(1 for _ in cpu_calibrate.probes_of(known))
    desk.note(f"measuring fitted figures with {total} pairs of kernels")

    def told(one: cpu_calibrate.Found) -> None:
        value = "shows nothing new" if one.value is None else f"{one.value:g} (was {one.known:g})"
        desk.note(f"  {FIT + one.figure:<24} {one.ratio:6.2f} times as long  {value}")

    fitted = cpu_calibrate.calibrated_fit(known, _alternating(known, rounds), told)
    return Calibration("cpu", found.machine, {**found.figures, **fitted})


def _alternating(target: Target, rounds: int) -> cpu_calibrate.Run:
    """A function that measures kernels in turns: the best of many short runs of each."""

    def run(kernels: Sequence[cpu_calibrate.Kernel]) -> list[float]:
        timed = [_timed(target, cpu(0), k.program, [dict(k.decision)], 1, 20, 0.1) for k in kernels]
        return [min(times) for times in zip(*[[f() for f in timed] for _ in range(rounds)], strict=True)]

    return run


def _timed(
    target: Target,
    device: Any,
    program: list[Any],
    decisions: Decisions,
    number: int,
    repeat: int,
    least_ms: float,
) -> Callable[[], float]:
    """A function that runs a program with decisions on random data, and returns the shortest time in seconds."""
    module = build(Sketches(task_of(program, target)).apply(decisions).mod, target=target)
    rng = np.random.default_rng(0)
    arrays = [
        array(rng.random([int(d) for d in t.shape], np.float32).astype(str(t.dtype)), device) for t in program
    ]
    timed = module.time_evaluator("main", device, number=number, repeat=repeat, min_repeat_ms=least_ms)
    return lambda: float(min(timed(*arrays).results))


# -- GPUs -----------------------------------------------------------------------------------------
def _gpu(desk: Desk, rounds: int) -> Calibration:
    device = cuda(0)
    target = Target.from_device(device)
    plain = Target(f"cuda -arch={target.arch} -multi_processor_count={device.multi_processor_count}")
    name = str(device.device_name or plain.arch)
    total = sum(1 for _ in probes_of(target))
    desk.note(f"measuring {name} ({plain.arch}) with {total} kernels")
    count = iter(range(1, total + 1))

    def tell(found: Found) -> None:
        value = "shows nothing new" if found.value is None else f"{found.value:g} (was {found.known:g})"
        desk.note(f"  [{next(count):>2}/{total}] {found.figure:<30} {found.seconds * 1e6:10.2f} us  {value}")

    # The figures that the device reports, then those that its kernels show.
    figures: dict[str, int | float] = {
        "multiprocessors": int(device.multi_processor_count or plain.gpu.multiprocessors),
        "l2_cache": int(device.l2_cache_size_bytes or plain.gpu.l2_cache),
    }
    if device.max_clock_rate:
        figures["clock"] = device.max_clock_rate / 1e6
    # A target with explicit figures ignores an earlier calibration.
    known = plain.with_machine(figures)
    figures |= calibrated_figures(known, _runner(known, device, rounds), tell)
    machine = {"name": name, "arch": plain.arch, "multiprocessors": figures["multiprocessors"]}
    return Calibration("cuda", machine, figures)


def _runner(target: Target, device: Any, rounds: int) -> Callable[[Probe], float]:
    """A function that measures a probe on a device: the best of several rounds."""

    def run(probe: Probe) -> float:
        return _timed(target, device, probe.program, probe.decisions, 5, rounds, 10)()

    return run
