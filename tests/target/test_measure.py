"""Figures of processors: by name, given by hand, and measured on this machine."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright import config
from tilewright.ir.errors import TargetError
from tilewright.target import CpuMachine, Target, measure
from tilewright.target import cpus as table
from tilewright.target.machine import OWN_FIGURES, text_of_figures
from tilewright.target.measure import PHYSICAL, Figures, _near_half, _power, calibrate_cpu, measured_file
from tilewright.target.probes import Memory, best, probes


# -- by name ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cpu", "ports", "loads", "stores"),
    [
        ("haswell", 2, 2.0, 1.0),
        ("skylake-avx512", 2, 2.0, 1.0),
        ("icelake-client", 2, 2.0, 1.0),
        ("sapphirerapids", 2, 2.0, 1.0),
        ("alderlake", 2, 3.0, 2.0),
        ("znver1", 1, 1.0, 0.5),
        ("znver3", 2, 2.0, 1.0),
        ("znver4", 1, 1.0, 0.5),
        ("znver4 -mattr=-avx512f", 2, 2.0, 1.0),
        ("znver5", 2, 2.0, 1.0),
        ("cortex-a53", 1, 0.5, 1.0),
        ("neoverse-v1", 4, 3.0, 2.0),
        ("apple-m1", 4, 3.0, 2.0),
    ],
)
def test_pipes_count_preferred_vectors(cpu: str, ports: int, loads: float, stores: float) -> None:
    found = Target(f"llvm -mcpu={cpu}").cpu
    assert (found.fma_ports, found.loads_per_cycle, found.stores_per_cycle) == (ports, loads, stores)


@pytest.mark.parametrize("name", [*table._TABLE, *table._SAME, "no-such-processor"])
def test_every_named_processor_has_sensible_figures(name: str) -> None:
    if name == "generic":
        return
    found = Target({"kind": "llvm", "mcpu": name}).cpu
    assert found.source == "table"
    for figure, value in found.figures().items():
        kind, low, high = OWN_FIGURES[figure]
        assert isinstance(value, (int, float)) and low <= value <= high, (figure, value)
        assert kind is float or isinstance(value, int), figure
    assert found.memory_bandwidth <= found.memory_bandwidth_all <= found.memory_bandwidth * found.num_cores
    assert found.l1_latency <= found.l2_latency <= found.l3_latency
    assert found.l1_bandwidth >= found.l3_bandwidth / 2 and found.bandwidth(1) == found.memory_bandwidth


def test_peaks() -> None:
    skylake = Target("llvm -mcpu=skylake -num-cores=4").cpu
    assert skylake.peak_gflops() == pytest.approx(2 * 2 * 8 * skylake.clock)
    assert skylake.peak_gflops(0) == pytest.approx(4 * skylake.peak_gflops())
    assert skylake.bandwidth(0) == skylake.memory_bandwidth_all == skylake.bandwidth(100)


def test_the_table_of_figures_reads_well() -> None:
    assert Target("llvm -mcpu=znver4 -num-cores=2").cpu.table() == (
        "processor      znver4 (x86_64), 2 cores, 3.70 GHz [table]\n"
        "vectors        32 x 512 bits, 512 preferred\n"
        "multiply-add   1 of 512 bits in a cycle, latency 4\n"
        "loads, stores  1, 0.5 of 512 bits in a cycle\n"
        "peak           118.4 GFLOP/s float32 with one core, 236.8 with all\n"
        "L1             32 KiB, 4.0 cycles, 64.0 bytes in a cycle (237 GB/s)\n"
        "L2             1 MiB, 14.0 cycles, 29.0 bytes in a cycle (107 GB/s)\n"
        "L3             32 MiB, 50.0 cycles, 24.0 bytes in a cycle (89 GB/s)\n"
        "line           64 bytes\n"
        "memory         100 ns, 28.0 GB/s with one core, 56.0 with all\n"
        "launch         2.20 microseconds for a parallel loop"
    )
    assert str(Target("llvm -mcpu=cortex-m4").cpu).count("none") == 3


# -- given by hand ------------------------------------------------------------------------------
def test_given_figures_are_part_of_the_target() -> None:
    plain = Target("llvm -mcpu=znver4")
    made = plain.with_machine({"clock": 3.1, "l2": 2 << 20})
    assert (made.cpu.clock, made.cache_sizes.l2, made.cpu.source) == (3.1, 2 << 20, "given")
    assert made.cpu.memory_bandwidth == plain.cpu.memory_bandwidth
    assert made != plain and hash(made) != hash(plain)
    for again in (
        Target(str(made)),
        Target(made.export()),
        Target(made.to_json()),
        pickle.loads(pickle.dumps(made)),
        copy.deepcopy(made),
        Target(made),
    ):
        assert again == made and again.cpu == made.cpu
    assert made.with_machine({"clock": 3.1}) == made
    assert made.with_machine({"fma_ports": 2}).cpu.clock == 3.1
    assert made.with_machine(None) == plain and plain.cpu.source == "table"


def test_a_whole_machine_may_be_given() -> None:
    other = Target("llvm -mcpu=skylake").cpu
    made = Target("llvm -mcpu=haswell").with_machine(other).cpu
    assert made.figures() == other.figures() and made.cpu == "haswell"
    narrow = Target("llvm -mcpu=haswell -num-cores=3").with_machine(Target("llvm -mcpu=znver4").cpu)
    assert narrow.num_cores == 3 and narrow.preferred_vector_bits == 256
    assert Target("llvm -mcpu=haswell -num-cores=3 -machine=num_cores:7").num_cores == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clok:3", "'clok' is not a figure of a processor; did you mean clock?"),
        ("clock:300", "clock takes a number from 0.001 to 20, not '300'"),
        ("clock:fast", "clock takes a number from 0.001 to 20, not 'fast'"),
        ("fma_ports:1.5", "fma_ports takes a whole number from 1 to 16, not '1.5'"),
        ("clock", "-machine takes name:number with commas between, not 'clock'"),
    ],
)
def test_refused_figures(text: str, said: str) -> None:
    with pytest.raises(TargetError) as raised:
        Target(f"llvm -machine={text}")
    assert said in str(raised.value) and f"llvm -machine={text}" in str(raised.value)


def test_refused_machines() -> None:
    with pytest.raises(TargetError, match="takes a number from"):
        Target("llvm").with_machine({"clock": True})
    with pytest.raises(TargetError, match="has no machine figures; only CPU and GPU targets have them"):
        Target("ext_dev").with_machine({"clock": 1.0})
    with pytest.raises(TargetError, match="takes figures by name, not a CpuMachine"):
        Target("cuda").with_machine(Target("llvm").cpu)
    arm = Target("llvm -mcpu=cortex-a72").cpu
    with pytest.raises(TargetError, match=r"those of cortex-a72 \(aarch64\), but target .* is for x86_64"):
        Target("llvm -mcpu=haswell").with_machine(arm)


def test_the_text_of_figures_is_always_the_same() -> None:
    assert text_of_figures({"line": 64, "clock": 3.25}) == text_of_figures({"clock": 3.25, "line": 64})
    assert text_of_figures({"line": 64, "clock": 3.25}) == "clock:3.25,line:64"


# -- measured -----------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path) -> object:
    with config.using(cache_dir=tmp_path):
        yield tmp_path


def _write(figures: dict[str, float]) -> None:
    path = measured_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"figures": figures}))


def test_kept_figures_are_used_when_asked_for_and_never_by_themselves(folder: Path) -> None:
    _write({"clock": 1.25, "fma_latency": 9})
    found = measure()
    assert (found.clock, found.fma_latency, found.source) == (1.25, 9, "measured")
    assert Target("llvm").cpu.clock != 1.25 and Target("llvm").cpu.source == "table"
    assert Target("llvm").with_machine(found).cpu.clock == 1.25


def test_the_file_is_one_for_each_processor(folder: Path) -> None:
    two = {
        measured_file(Target(f"llvm -mcpu={c} -num-cores={n}").cpu)
        for c in ("haswell", "znver4")
        for n in (1, 2)
    }
    assert len(two) == 4 and all(folder in path.parents for path in two)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"figures": {"clock": -1}}', '{"figures": {"other": 1}}', '{"figures": 3}']
)
def test_a_damaged_file_is_measured_anew(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts(monkeypatch, {"clock": 2.5})
    path = measured_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert measure().clock == 2.5
    assert json.loads(path.read_text())["figures"] == {"clock": 2.5}
    attempts(monkeypatch, {"clock": 3.5})
    assert measure().clock == 2.5 and measure(force=True).clock == 3.5 and measure().clock == 3.5
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts(monkeypatch, {"clock": 2.5})
    (tmp_path / "file").write_text("")
    with config.using(cache_dir=tmp_path / "file"):
        assert measure().clock == 2.5


@pytest.mark.slow
def test_measuring_this_machine(folder: Path) -> None:
    found = measure(force=True)
    assert isinstance(found, CpuMachine) and found.source == "measured" and measure() == found
    assert 0.3 < found.clock < 8 and 1 <= found.fma_ports <= 8 and 1 <= found.fma_latency <= 20
    assert found.l1_latency < found.memory_latency * found.clock
    assert found.l1_bandwidth > found.memory_bandwidth / found.clock
    assert found.cache_sizes == Target("llvm").cache_sizes
    assert set(found.figures()) == set(OWN_FIGURES)


def test_the_probes_run() -> None:
    run, room = probes(), Memory(1 << 16)
    assert run.clock(10) > 0 and run.launches(2, 2, 1) > 0
    for bits in run.widths:
        assert run.multiply(bits, 10) > 0 and run.multiply(bits, 10, 2) > 0 and run.chained(bits, 10) > 0
        for form, pieces in (("load", 1), ("store", 1), ("copy", 2), ("copy_past", 2), ("triad", 3)):
            assert run.memory(form, bits, [room] * pieces, 1 << 15, 1 << 15, 2) > 0


def test_copies_copy() -> None:
    import ctypes

    run, source, other = probes(), Memory(1 << 16), Memory(1 << 16)
    ctypes.memset(source.address, 7, 1 << 16)
    for bits, form in zip(run.widths, ("copy", "copy_past", "copy")):
        ctypes.memset(other.address, 0, 1 << 16)
        run.memory(form, bits, [source, other], 1 << 15, 1 << 15)
        assert ctypes.string_at(other.address, 1 << 16) == b"\7" * (1 << 15) + b"\0" * (1 << 15)


def test_a_ring_of_pointers_visits_every_cell_once() -> None:
    import ctypes

    room = Memory(1 << 14)
    start = at = room.chain(1 << 13, 128)
    seen = set()
    for _ in range(64):
        seen.add(at)
        at = ctypes.c_uint64.from_address(at).value
    assert at == start and len(seen) == 64
    assert {(a - room.address) % 128 for a in seen} == {0} and max(seen) < room.address + (1 << 13)
    _, last = probes().chase(start, 4)
    assert last == start


def test_small_helpers() -> None:
    assert [_power(n) for n in (0, 1, 3, 4, 96)] == [1, 1, 2, 4, 64]
    assert [_near_half(v) for v in (0.93, 1.02, 0.48, 1.2, 2.9)] == [1.0, 1.0, 0.5, 1.2, 3.0]
    results = iter([3.0, 1.0, 1.01])
    assert best(lambda: next(results), 3) == 1.0
    ran: list[int] = []
    assert probes().together(ran.append, 3) >= 0 and sorted(ran) == [0, 1, 2]


# -- beside other load --------------------------------------------------------------------------
def test_a_result_that_no_other_confirms_is_measured_again() -> None:
    disturbed = iter([9.0, 5.0, 7.0, 2.0, 1.0, 1.02, 0.5])
    assert best(lambda: next(disturbed), 1) == 1.0
    never = iter(2.0**-i for i in range(100))
    assert best(lambda: next(never), 2) == 2.0**-13, "the number of tries is limited"


def attempts(monkeypatch: pytest.MonkeyPatch, *given: dict[str, float], steady: bool = True) -> list[int]:
    """Let the measurements of all figures give these results in turn. Returns the list of their numbers."""
    module, count = sys.modules["tilewright.target.measure"], list[int]()

    def measured(plain: CpuMachine, rounds: int, tell: Any) -> Figures:
        out = Figures(tell)
        out.update(given[len(count)])
        out.steady = steady
        count.append(len(count))
        return out

    monkeypatch.setattr(module, "_measured", measured)
    return count


GOOD = {"clock": 3.0, "fma_ports": 2, "l1_latency": 4.0, "l2_latency": 14.0, "memory_latency": 90.0}


def test_figures_that_are_not_possible_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    count, said = attempts(monkeypatch, {**GOOD, "clock": 40.0, "fma_ports": 28}, GOOD), list[str]()
    found = calibrate_cpu(1, lambda name, value: said.append(name))
    assert len(count) == 2 and found.figures == GOOD
    assert said == ["measuring again, because of clock, fma_ports"]


def test_figures_that_stay_impossible_keep_the_value_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    count, said = attempts(monkeypatch, *[{**GOOD, "fma_ports": 28}] * 3), list[str]()
    found = calibrate_cpu(1, lambda name, value: said.append(name))
    plain = Target("llvm").cpu
    assert len(count) == 3 and found.figures == {k: v for k, v in GOOD.items() if k != "fma_ports"}
    assert said[-1] == (
        "fma_ports: 28 is left out, because it is between 1 and 6 on any machine: other programs use the machine. It "
        f"keeps {plain.fma_ports}, the value of the table for {plain.cpu}; measure again when the machine is idle"
    )
    assert Target("llvm").with_machine(dict(found.figures)).cpu.fma_ports == plain.fma_ports


def test_a_cache_that_is_slower_than_memory_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts(monkeypatch, *[{**GOOD, "l1_latency": 15.0}] * 3)
    said = list[str]()
    assert "l1_latency" not in calibrate_cpu(1, lambda name, value: said.append(name)).figures
    assert "because a cache is not slower than the memory behind it" in said[-1]


def test_a_clock_that_was_disturbed_spoils_what_counts_cycles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    attempts(monkeypatch, *[GOOD] * 3, steady=False)
    with config.using(cache_dir=tmp_path), pytest.warns(UserWarning, match="the clock was measured wrong"):
        found = measure()
    plain = Target("llvm").cpu
    assert found.memory_latency == 90.0 and (found.clock, found.l2_latency) == (plain.clock, plain.l2_latency)


@pytest.mark.parametrize("name", [*table._TABLE, *table._SAME])
def test_every_known_processor_is_possible(name: str) -> None:
    figures = Target({"kind": "llvm", "mcpu": name}).cpu.figures() if name != "generic" else {}
    assert not [f for f, v in figures.items() if f in PHYSICAL and not PHYSICAL[f][0] <= v <= PHYSICAL[f][1]]
