"""The figures of targets, and what LLVM is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.ir.errors import TargetError
from tilewright.runtime import host as runtime_host
from tilewright.target import CacheSizes, Target, codegen, host, machine
from tilewright.target.cpu_fit import FIT, FITTED
from tilewright.target.cpus import (
    _SAME,
    _TABLE,
    architecture_of_cpu,
    architecture_of_triple,
    cpu_named,
    nearest_cpu,
)


# -- this machine -------------------------------------------------------------------------------
def test_host_features_come_with_the_name() -> None:
    llvm = Target("llvm").llvm
    assert llvm.is_host and llvm.cpu == host.host_cpu_name() and llvm.triple == host.host_triple()
    said = llvm.features.split(",")
    assert all(item[0] in "+-" for item in said)
    assert {item[1:] for item in said if item[0] == "+"} == set(host.host_features())
    assert Target("llvm -mcpu=native").llvm == llvm
    assert Target("llvm -mattr=-fma").llvm.features == llvm.features + ",-fma"


def test_a_machine_that_hides_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine that says znver4 and has no AVX-512: the name alone would be illegal."""
    features = {"avx2": True, "avx": True, "fma": True, "avx512f": False, "sse2": True}
    for module in (host, runtime_host):
        monkeypatch.setattr(module, "feature_map", lambda: features)
    said, have = host.host_feature_string.__wrapped__, host.host_features.__wrapped__
    for module in (host, machine):
        monkeypatch.setattr(module, "host_cpu_name", lambda: "znver4")
        monkeypatch.setattr(module, "host_feature_string", said)
        monkeypatch.setattr(module, "host_features", have)
        monkeypatch.setattr(module, "host_architecture", lambda: "x86_64")
    made = Target("llvm")
    assert made.llvm.features == "+avx,+avx2,-avx512f,+fma,+sse2"
    assert made.vector_bits == 256 and made.vector_registers == 16
    assert not codegen.target_has_features("avx512f", made)
    assert Target("llvm -mcpu=znver4").vector_bits == 512
    assert not Target("llvm -mcpu=znver4").llvm.is_host


@pytest.mark.parametrize(
    ("reported", "like", "expected"),
    [
        (
            "rocketlake",
            "sapphirerapids",
            "sapphirerapids",
        ),  # a virtual machine with the model number of a desktop
        ("rocketlake", "icelake-client", "rocketlake"),
        ("sapphirerapids", "haswell", "sapphirerapids"),  # hidden features make no other processor
        ("znver9", "znver5", "znver5"),
        ("no such name", "alderlake", "alderlake"),
    ],
)
def test_a_processor_whose_name_lacks_its_features(reported: str, like: str, expected: str) -> None:
    assert nearest_cpu(reported, cpu_named(like).features | {"sha", "vaes"}) == expected


def test_known_processors_keep_their_names() -> None:
    names = [n for n, c in _TABLE.items() if c.arch == "x86_64" and not n.startswith("x86-64")]
    assert [nearest_cpu(n, cpu_named(n).features) for n in names] == names


def test_explicit_processor_uses_its_own_defaults() -> None:
    llvm = Target("llvm -mcpu=haswell -mattr=+avx512f").llvm
    assert (llvm.cpu, llvm.features) == ("haswell", "+avx512f")
    assert Target("llvm -mcpu=haswell").llvm.features == ""


def test_cross_targets() -> None:
    arm = Target("llvm -mtriple=aarch64-linux-gnu").llvm
    assert (arm.triple, arm.cpu, arm.features) == ("aarch64-linux-gnu", "generic", "")
    risc = Target("llvm -mtriple=riscv64-unknown-linux-gnu").llvm
    assert (risc.cpu, risc.features, risc.abi) == ("generic-rv64", "+m,+a,+f,+d,+c", "lp64d")
    if host.host_architecture() != "aarch64":
        assert not arm.is_host
        assert Target("llvm -mcpu=cortex-a72").llvm.triple == "aarch64-unknown-linux-gnu"
    with pytest.raises(TargetError, match="not compiled by LLVM"):
        _ = Target("cuda").llvm


def test_every_host_setting_compiles() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for text in ("llvm", "llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu", "llvm -mcpu=cortex-a72"):
        said = Target(text).llvm
        made = llvm.Target.from_triple(said.triple).create_target_machine(
            cpu=said.cpu, features=said.features
        )
        assert made.triple.split("-")[0] == said.triple.split("-")[0]


def test_cores_and_caches_of_this_machine() -> None:
    made = Target("llvm")
    assert made.num_cores == host.host_cores() >= 1
    assert Target("llvm -num-cores=3").num_cores == 3
    assert made.cache_sizes.l1d >= 4096 and made.cache_sizes.line in (32, 64, 128, 256)


def test_reading_caches(tmp_path: Path) -> None:
    def index(number: int, level: str, kind: str, size: str) -> None:
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size), ("coherency_line_size", "128")):
            (folder / name).write_text(text + "\n")

    assert host.host_cache_sizes(tmp_path) is None
    host.host_cache_sizes.cache_clear()
    index(0, "1", "Data", "48K")
    index(1, "1", "Instruction", "64K")
    index(2, "2", "Unified", "2M")
    assert host.host_cache_sizes(tmp_path) == CacheSizes(48 * 1024, 2 * 1024 * 1024, 0, 128)
    host.host_cache_sizes.cache_clear()
    (tmp_path / "index0" / "size").write_text("much")
    assert host.host_cache_sizes(tmp_path) is None
    host.host_cache_sizes.cache_clear()


# -- processors by name -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "bits", "preferred", "registers"),
    [
        ("llvm -mcpu=x86-64", 128, 128, 16),
        ("llvm -mcpu=haswell", 256, 256, 16),
        ("llvm -mcpu=core-avx2", 256, 256, 16),
        ("llvm -mcpu=skylake-avx512", 512, 512, 32),
        ("llvm -mcpu=icelake-client", 512, 256, 32),
        ("llvm -mcpu=skylake-avx512 -mattr=-avx512f", 256, 256, 16),
        ("llvm -mcpu=x86-64 -mattr=+avx2", 256, 256, 16),
        ("llvm -mcpu=x86-64 -mattr=+avx512vnni", 512, 512, 32),
        ("llvm -mcpu=haswell -mattr=-avx", 128, 128, 16),
        ("llvm -mcpu=znver3", 256, 256, 16),
        ("llvm -mcpu=znver4", 512, 512, 32),
        ("llvm -mcpu=haswell -vector-width=128", 128, 128, 16),
        ("llvm -mtriple=i686-linux-gnu", 128, 128, 8),
        ("llvm -mcpu=cortex-a72", 128, 128, 32),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon", 128, 128, 16),
        ("llvm -mcpu=neoverse-v1", 128, 128, 32),
        ("llvm -mcpu=sifive-x280", 128, 128, 32),
        ("llvm -mtriple=wasm32-unknown-unknown", 64, 64, 16),
        ("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128", 128, 128, 16),
    ],
)
def test_vectors(text: str, bits: int, preferred: int, registers: int) -> None:
    made = Target(text)
    assert (made.vector_bits, made.preferred_vector_bits, made.vector_registers) == (
        bits,
        preferred,
        registers,
    )
    assert made.cpu.lanes(32) == max(1, preferred // 32)


def test_fma() -> None:
    assert Target("llvm -mcpu=haswell").cpu.fma and not Target("llvm -mcpu=sandybridge").cpu.fma
    assert Target("llvm -mcpu=cortex-a72").cpu.fma
    assert not Target("llvm -mcpu=haswell -mattr=-fma").cpu.fma


def test_caches_by_name() -> None:
    assert Target("llvm -mcpu=cortex-a72").cache_sizes == CacheSizes(32768, 1048576, 0, 64)
    assert Target("llvm -mcpu=apple-m1").cache_sizes.line == 128
    assert Target("llvm -mcpu=made-up").cache_sizes.l1d == 32768


def test_tables_are_sound() -> None:
    for alias, name in _SAME.items():
        assert name in _TABLE and alias not in _TABLE
    for name in _TABLE:
        if name != "generic":
            assert architecture_of_cpu(name) and cpu_named(name).core.fma.ports >= 1
    assert architecture_of_cpu("no-such") is None


def test_architectures() -> None:
    found = {
        t: architecture_of_triple(t)
        for t in (
            "x86_64-linux-gnu",
            "arm64-apple-macos",
            "armv7l-linux",
            "i686-pc",
            "thumbv7em-none",
            "what-ever",
        )
    }
    assert list(found.values()) == ["x86_64", "aarch64", "arm", "x86", "arm", None]


def test_features() -> None:
    have = Target("llvm -mcpu=cascadelake").features
    assert "avx512vnni" in have and have.has_avx2 and not have.has_sve and len(have) == len(list(have))
    arm = Target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve2,+i8mm").features
    assert arm.has_asimd and arm.has_sve and arm.has_matmul_i8 and arm.is_aarch64 and not arm.has_dotprod
    assert len(Target("cuda").features) == 0
    with pytest.raises(AttributeError):
        _ = arm.avx2


# -- GPUs ---------------------------------------------------------------------------------------
def test_gpu_figures() -> None:
    h200 = Target("cuda -model=h200").gpu
    assert (h200.multiprocessors, h200.l2_cache, h200.bandwidth) == (132, 60 * 1024 * 1024, 4800.0)
    assert 60e12 < h200.peak_flops < 70e12
    by_arch = Target("cuda -arch=sm_80").gpu
    assert by_arch.multiprocessors == 108 and by_arch.dynamic_shared_memory_per_block == 166912
    assert Target("cuda").gpu.dynamic_shared_memory_per_block >= 49152
    assert Target("opencl").gpu.shared_memory_per_block == 16384
    assert Target("cuda -arch=sm_999").gpu.warp_size == 32


def test_figures_of_the_wrong_kind() -> None:
    with pytest.raises(TargetError, match="is not a CPU target"):
        _ = Target("cuda").vector_bits
    with pytest.raises(TargetError, match="is not a GPU target"):
        _ = Target("llvm").gpu


# -- questions to LLVM --------------------------------------------------------------------------
def test_llvm_version() -> None:
    found = codegen.llvm_version_major()
    assert isinstance(found, int) and found >= 15 and codegen.llvm_version_major(allow_none=True) == found


def test_intrinsics() -> None:
    fma = codegen.llvm_lookup_intrinsic_id("llvm.fma")
    sdot = codegen.llvm_lookup_intrinsic_id("llvm.aarch64.neon.sdot")
    assert fma > 0 and sdot > 0 and fma != sdot
    assert codegen.llvm_lookup_intrinsic_id("llvm.fma") == fma
    assert codegen.llvm_get_intrinsic_name(fma) == "llvm.fma"
    for none in ("llvm.nonsense.x", "fma", "llvm.f ma", 'llvm.x"'):
        assert codegen.llvm_lookup_intrinsic_id(none) == 0
    with pytest.raises(ValueError, match="is the number of no LLVM intrinsic"):
        codegen.llvm_get_intrinsic_name(0)


def test_target_questions() -> None:
    assert codegen.target_has_features("avx2", "llvm -mcpu=haswell")
    assert codegen.target_has_features(["avx2", "+fma"], Target("llvm -mcpu=haswell"))
    assert not codegen.target_has_features("avx2,avx512f", "llvm -mcpu=haswell")
    assert codegen.llvm_get_vector_width("llvm -mcpu=haswell") == 256
    with Target("llvm -mcpu=x86-64"):
        assert codegen.llvm_get_vector_width() == 128 and not codegen.target_has_features("avx")
    assert codegen.llvm_get_vector_width() == Target("llvm").vector_bits
    assert codegen.llvm_get_system_cpu() == host.host_cpu_name()
    assert codegen.llvm_get_system_triple() == host.host_triple()
    with pytest.raises(TargetError):
        codegen.llvm_get_vector_width("cuda")


# ---------------------------------------------------------------------------- fitted figures
def test_fitted_figures_are_given_by_name() -> None:
    target = Target("llvm -mcpu=haswell -machine=fit.row_entry:3,fit.l1_sets:128,clock:3.1")
    machine = target.cpu
    assert (machine.fit.row_entry, machine.fit.l1_sets, machine.clock) == (3.0, 128, 3.1)
    assert machine.fit.gather_lane == Target("llvm -mcpu=haswell").cpu.fit.gather_lane
    assert machine.table().splitlines()[-1] == "fitted         row_entry 3, l1_sets 128"
    assert Target(str(target)).cpu == machine
    other = Target("llvm -mcpu=haswell").with_machine(machine)
    assert other.cpu.fit == machine.fit and "fit.row_entry:3.0" in str(other)
    assert Target("llvm -mcpu=haswell").with_machine({"fit.page": 8192}).cpu.fit.page == 8192


def test_every_fitted_figure_says_what_it_is() -> None:
    for name, one in FITTED.items():
        assert one.meaning and one.kernels, name
        given = Target("llvm -mcpu=znver4").with_machine({FIT + name: one.value * 2})
        assert getattr(given.cpu.fit, name) == one.value * 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("fit.row_entri:3", "'fit.row_entri' is not a figure of a processor; did you mean fit.row_entry"),
        ("fit.row_entry:-1", "fit.row_entry takes a number from 0.004 to 4000, not '-1'"),
        ("fit.l1_sets:many", "fit.l1_sets takes a whole number from 1 to 64000, not 'many'"),
        ("fit.row_entry:nan", "fit.row_entry takes a number from 0.004 to 4000, not 'nan'"),
    ],
)
def test_fitted_figures_are_checked(given: str, why: str) -> None:
    with pytest.raises(TargetError, match=re.escape(why)):
        _ = Target(f"llvm -machine={given}").cpu


def test_machines_of_two_generations_of_x86_and_of_arm_servers() -> None:
    names = ("haswell", "skylake-avx512", "znver3", "znver5", "neoverse-n1", "neoverse-v2")
    peaks = [Target(f"llvm -mcpu={name}").cpu.peak_gflops() for name in names]
    assert min(peaks) > 40 and len(set(peaks)) == len(peaks)
    assert Target("llvm -mcpu=neoverse-n1").cpu.fit.l1_sets == 256
