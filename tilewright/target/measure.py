"""Measured figures of this machine, for cost models that need more than the table of known machines."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .. import config
from ..files import write_whole
from ..ir.errors import TargetError
from ..ir.serialize import read_json
from ..version import __version__
from .calibration import Calibration
from .host import host_cores
from .machine import CpuMachine, checked_figures, with_figures
from .probes import Memory, Probes, best, probes
from .target import Target

_K, _M = 1024, 1024 * 1024
_ROUNDS: Final = 9
_AGAIN: Final = 2  # how often all figures are measured again if some are doubtful
_STEADY: Final = (
    0.85  # a cycle that takes less than this share of the first measurement shows that it was disturbed
)
_FORMAT: Final = 1
Tell = Callable[[str, float], None]  # called with each figure as soon as it is known


def measure(force: bool = False) -> CpuMachine:
    """The figures of this machine, measured once (it takes about two seconds) and kept in the cache folder.

        target = Target("llvm").with_machine(tilewright.target.measure())

    `force` measures again. The cached figures are not used automatically: a target without `with_machine` has
    the figures of its CPU's name, so that the same program gets the same schedule everywhere.
    """
    plain = Target("llvm").cpu
    path = measured_file(plain)
    figures = None if force else _kept(path)
    if figures is None:
        figures = _trusted(plain, _ROUNDS, lambda name, value: None, warn)
        _keep(path, plain, figures)
    return with_figures(plain, figures, "measured")


def calibrate_cpu(rounds: int, tell: Tell) -> Calibration:
    """The figures of this machine, each the best of `rounds` tries or more, for `calibration.keep`."""
    plain = Target("llvm").cpu
    figures = _trusted(plain, rounds, tell, lambda text: tell(text, math.nan))
    return Calibration("cpu", {"name": plain.cpu, "cores": host_cores()}, figures)


def warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)


# The least and the greatest value that a figure has on any machine. A measurement beyond them was disturbed.
PHYSICAL: Final[dict[str, tuple[float, float]]] = {
    "clock": (0.1, 8), "fma_ports": (1, 6), "fma_latency": (2, 20), "loads_per_cycle": (0.2, 6),
    "stores_per_cycle": (0.2, 4), "l1_latency": (1, 20), "l2_latency": (3, 120), "l3_latency": (5, 600),
    "memory_latency": (10, 2000), "l2_bandwidth": (0.5, 512), "l3_bandwidth": (0.5, 512),
    "memory_bandwidth": (0.1, 1000), "memory_bandwidth_all": (0.1, 10000), "launch_us": (0.05, 10000),
}  # fmt: skip


_WITHOUT_CLOCK: Final = (
    "preferred_vector_bits", "memory_latency", "memory_bandwidth", "memory_bandwidth_all"
)  # fmt: skip


def _trusted(
    plain: CpuMachine, rounds: int, tell: Tell, warned: Callable[[str], None]
) -> dict[str, int | float]:
    """Measured figures without those that other load has spoilt: all are measured again if there are such, and the
    ones that remain doubtful keep the values of `plain`, with a warning."""
    figures = _measured(plain, rounds, tell)
    doubtful = _doubtful(figures)
    for _ in range(_AGAIN):
        if not doubtful:
            break
        tell(f"measuring again, because of {', '.join(doubtful)}", math.nan)
        again = _measured(plain, rounds, tell)
        if len(_doubtful(again)) <= len(doubtful):
            figures, doubtful = again, _doubtful(again)
    for name, why in doubtful.items():
        warned(
            f"{name}: {figures.pop(name):g} is left out, because {why}: other programs use the machine. It keeps "
            f"{getattr(plain, name):g}, the value of the table for {plain.cpu}; measure again when the machine is idle"
        )
    return dict(figures)


def _doubtful(figures: Figures) -> dict[str, str]:
    """The figures that a disturbed measurement has given, with the reasons."""
    out = dict.fromkeys(_implausible(figures), "a cache is not slower than the memory behind it")
    for name, value in figures.items():
        low, high = PHYSICAL.get(name, (-math.inf, math.inf))
        if not low <= value <= high:
            out[name] = f"it is between {low:g} and {high:g} on any machine"
        elif not figures.steady and name not in _WITHOUT_CLOCK:
            out[name] = "the clock was measured wrong"
    return out


def _implausible(figures: Mapping[str, int | float]) -> list[str]:
    """Implausible figures: a cache that is slower than the memory behind it."""
    levels = [name for name in ("l1", "l2", "l3") if f"{name}_latency" in figures]
    behind = [f"{name}_latency" for name in levels[1:]]
    out = [f"{a}_latency" for a, b in zip(levels, behind) if figures[f"{a}_latency"] > figures[b]]
    far = figures.get("memory_latency", math.inf) * figures.get("clock", 1.0)
    return [
        *out,
        *(f"{a}_latency" for a in levels if figures[f"{a}_latency"] > far and f"{a}_latency" not in out),
    ]


def measured_file(machine: CpuMachine | None = None) -> Path:
    """The file of the measured figures: one for each CPU, number of cores and version."""
    plain = machine or Target("llvm").cpu
    said = [plain.cpu, sorted(plain.features), plain.num_cores, __version__, _FORMAT]
    key = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]
    return config.cache_dir.value / "machines" / f"{plain.cpu}-{plain.num_cores}-{key}.json"


def _kept(path: Path) -> dict[str, int | float] | None:
    """The figures of a file; None if it is missing or unusable, and is then written again."""
    try:
        return checked_figures(read_json(path.read_bytes(), str(path))["figures"], str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, TargetError):
        return None


def _keep(path: Path, machine: CpuMachine, figures: dict[str, int | float]) -> None:
    told = {"cpu": machine.cpu, "cores": machine.num_cores, "package": __version__, "figures": figures}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(told, indent=2) + "\n")  # another process may be reading
    except OSError:
        pass  # a cache that cannot be written costs time, not the answer


def _measured(plain: CpuMachine, rounds: int, tell: Tell) -> Figures:
    """All figures, by name."""
    out = Figures(tell)
    run = probes()
    second = _cycle(run, rounds)
    out["clock"] = _digits(1e-9 / second)
    bits = _best_width(run, rounds)
    out["preferred_vector_bits"] = bits
    turns = 10_000
    took = best(lambda: run.multiply(bits, turns), rounds)
    out["fma_ports"] = max(1, round(48 * turns * second / took))
    took = best(lambda: run.chained(bits, turns), rounds)
    out["fma_latency"] = max(1, round(took / second / (4 * turns)))
    _caches(run, plain, bits, second, rounds, out)
    _memory(run, plain, bits, rounds, out)
    if plain.num_cores > 1:
        out["launch_us"] = _launch(run, plain.num_cores, second, rounds)
    out.steady = _cycle(run, rounds) >= _STEADY * second
    return out


def _cycle(run: Probes, rounds: int) -> float:
    """The seconds of one cycle."""
    turns = 20_000
    return best(lambda: run.clock(turns), rounds) / (64 * turns)


class Figures(dict[str, "int | float"]):
    """Figures by name; a callback gets each of them. They are not `steady` if a cycle was shorter at the end than when
    it was measured: figures in cycles are wrong then."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell, self.steady = tell, True

    def __setitem__(self, name: str, value: int | float) -> None:
        super().__setitem__(name, value)
        self._tell(name, value)


def _best_width(run: Probes, rounds: int) -> int:
    """The widest vector with about the best throughput of multiply-adds: fewer instructions for the same work."""

    def speed(bits: int) -> float:
        return bits / best(lambda: run.multiply(bits, 10_000), rounds)

    found = {bits: speed(bits) for bits in run.widths}
    return max(bits for bits, done in found.items() if done > 0.93 * max(found.values()))


def _caches(run: Probes, plain: CpuMachine, bits: int, second: float, rounds: int, out: Figures) -> None:
    """Vectors and bytes per cycle, and latencies, of the caches."""
    sizes = plain.cache_sizes
    inside = {"l1": sizes.l1d // 2, "l2": sizes.l2 // 2, "l3": sizes.l3 // 4}
    inside = {name: _power(size) for name, size in inside.items() if size >= 4 * _K}
    room = Memory(max([64 * _K, *inside.values()]))
    for name, size in inside.items():

        def speed(form: str, width: int, name: str = name, size: int = size) -> float:
            """Bytes per cycle."""
            total = max(size, 64 * _M if name == "l1" else 16 * _M)
            took = best(lambda: run.memory(form, width, [room], size, total), rounds)
            return total * second / took

        if name == "l1":
            # The loop around them costs the wider vectors a little more.
            loads = max(speed("load", bits), speed("load", max(128, bits // 2)))
            out["loads_per_cycle"] = _near_half(loads * 8 / bits)
            out["stores_per_cycle"] = _near_half(speed("store", bits) * 8 / bits)
        else:
            out[f"{name}_bandwidth"] = _digits(speed("load", bits))
        # Half of the piece is enough for a latency, and few of its pages miss in the first table.
        start = room.chain(size // 2, max(64, sizes.line))
        out[f"{name}_latency"] = _digits(_latency(run, start, 2000, rounds) / second)


def _latency(run: Probes, start: int, turns: int, rounds: int) -> float:
    """Seconds per load in a chain of dependent loads. Each attempt continues where the last one ended."""
    least = float("inf")
    for _ in range(2 * rounds):
        took, start = run.chase(start, turns)
        least = min(least, took / (16 * turns))
    return least


def _memory(run: Probes, plain: CpuMachine, bits: int, rounds: int, out: Figures) -> None:
    """Bandwidth and latency of memory beyond the caches."""
    size = min(512 * _M, max(64 * _M, _power(8 * plain.cache_sizes.l3)))
    room = Memory(size)
    widths = {bits, max(128, bits // 2)}  # the narrower one is sometimes a little faster here
    tries = max(1, rounds // 2)
    one = max(stream(run, "load", width, [room], rounds=tries) for width in widths)
    out["memory_bandwidth"] = out["memory_bandwidth_all"] = _digits(one)
    if plain.num_cores > 1:
        threads = _power(plain.num_cores)
        speed = max(stream(run, "load", width, [room], threads, tries) for width in widths)
        out["memory_bandwidth_all"] = _digits(max(one, speed))
    out["memory_latency"] = _digits(_latency(run, room.chain(size, 256), 500, rounds) * 1e9)


def stream(
    run: Probes, form: str, bits: int, pieces: list[Memory], threads: int = 1, rounds: int = 4
) -> float:
    """GB/s between cores and memory, counting each byte that is read or written once.

    An attempt is short, so that no other process interrupts it, and covers memory that the earlier attempts have
    evicted from the caches.
    """
    size = min(piece.size for piece in pieces)
    part = min(size // 8, 16 * _M * threads)
    least = min(
        run.memory(form, bits, pieces, part, part, threads, offset)
        for _ in range(rounds)
        for offset in range(0, size, part)
    )
    return len(pieces) * part / least / 1e9


def _launch(run: Probes, cores: int, second: float, rounds: int) -> float:
    """The overhead of a parallel loop in microseconds, with one core's work for each core."""
    each, turns = 300, 50
    alone = 64 * each * second
    took = best(lambda: run.launches(turns, cores, each), 3 * rounds) / turns
    return _digits(max(0.1, (took - alone) * 1e6))


def _power(size: int) -> int:
    """The largest power of two that is not greater."""
    return 1 << (max(1, size).bit_length() - 1)


def _digits(value: float) -> float:
    """A number rounded to three digits; further digits are noise."""
    return float(f"{value:.3g}")


def _near_half(value: float) -> float:
    """A throughput, rounded to a multiple of one half if it is close: a pipe starts a vector every cycle or two."""
    half = max(1, round(value * 2)) / 2
    return half if abs(value - half) < 0.08 * half else _digits(value)
