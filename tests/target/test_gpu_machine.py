"""Figures and capabilities of GPUs: what a target says of them, and what is refused."""

from __future__ import annotations

import pytest

from tilewright.ir.errors import TargetError
from tilewright.target import Target
from tilewright.target.capabilities import CUDA_CAPABILITIES
from tilewright.target.gpu_machine import gpu_figures, register_split, with_gpu_figures
from tilewright.target.gpus import GPUS

FIRST = {
    "sm_61": "dp4a",
    "sm_75": "mma.f16 mma.s8",
    "sm_80": "mma.bf16 mma.tf32 cp.async",
    "sm_86": "",
    "sm_89": "",
    "sm_90": "tma cluster launch.early",
}


def test_an_architecture_has_what_the_ones_before_it_have() -> None:
    found: set[str] = set()
    for arch, new in FIRST.items():
        found |= set(new.split())
        target = Target(f"cuda -arch={arch}")
        assert {c for c in CUDA_CAPABILITIES if target.has(c)} == found


@pytest.mark.parametrize(
    ("arch", "wgmma", "setmaxnreg"),
    [("sm_90", False, False), ("sm_90a", True, True), ("sm_100", False, False), ("sm_100a", False, True)],
)
def test_instructions_of_one_architecture(arch: str, wgmma: bool, setmaxnreg: bool) -> None:
    target = Target(f"cuda -arch={arch}")
    assert (target.has("wgmma"), target.has("setmaxnreg"), target.has("tma")) == (wgmma, setmaxnreg, True)


def test_capabilities_of_others() -> None:
    assert Target("llvm -mcpu=znver4").has("avx512vnni") and not Target("llvm -mcpu=haswell").has("avx512f")
    assert not any(Target(kind).has(c) for kind in ("opencl", "metal") for c in CUDA_CAPABILITIES)
    assert Target("cuda -arch=sm_61").supports_integer_dot_product


def test_figures_by_name() -> None:
    plain = Target("cuda -arch=sm_90a")
    made = plain.with_machine({"mma.latency": 1200, "tma_simt.tiles.64x64.rate": 0.5})
    assert made.gpu.mma.latency == 1200 and made.gpu.source == "given" and plain.gpu.source == "table"
    assert [t.rate for t in made.gpu.tma_simt.tiles] == [0.85, 0.82, 0.82, 0.5]
    assert Target(str(made)) == made and Target(made.export()).gpu == made.gpu
    again = made.with_machine({"clock": 1.5})
    assert again.gpu.clock == 1.5 and again.gpu.mma.latency == 1200
    assert again.with_machine(None) == plain


def test_all_figures_can_be_replaced() -> None:
    gpu = Target("cuda -arch=sm_80").gpu
    other = {name: type(value)(2 * value) for name, value in gpu_figures(gpu).items()}
    assert gpu_figures(with_gpu_figures(gpu, other, "given")) == other


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ({"mma.latncy": 1}, "'mma.latncy' is not a figure of a GPU; did you mean"),
        ({"clock": 1e9}, r"clock takes a number from 0\.00198 to 1980, not 1000000000\.0"),
        ({"rows.vectors": "many"}, "rows.vectors takes a whole number"),
        ({"clock": True}, "clock takes a number"),
        ({"clock": float("nan")}, "clock takes a number"),
    ],
)
def test_refused_figures(figures: dict[str, object], why: str) -> None:
    with pytest.raises(TargetError, match=why):
        Target("cuda -arch=sm_90a").with_machine(figures)  # type: ignore[arg-type]


@pytest.mark.parametrize(("warpgroups", "blocks"), [(2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (1, 4)])
def test_registers_of_warpgroups_fit_an_sm(warpgroups: int, blocks: int) -> None:
    copies, computes = register_split(warpgroups, blocks)
    limits = Target("cuda -arch=sm_90a").gpu.limits
    assert 128 * blocks * (copies + warpgroups * computes) <= limits.registers
    assert copies % 8 == computes % 8 == 0


# ---------------------------------------------------------------------------- the table
# arch: SMs, threads, thread blocks and KiB of shared memory of an SM, float32 and 16-bit multiply-adds in a cycle
SHEETS = {
    "sm_75": (40, 1024, 16, 64, 64, 512),
    "sm_80": (108, 2048, 32, 164, 64, 1024),
    "sm_86": (46, 1536, 16, 100, 128, 256),
    "sm_89": (58, 1536, 24, 100, 128, 512),
    "sm_90": (132, 2048, 32, 228, 128, 1024),
    "sm_100": (148, 2048, 32, 228, 128, 1024),
}


@pytest.mark.parametrize("arch", SHEETS)
def test_machines_by_data_sheet(arch: str) -> None:
    gpu = Target(f"cuda -arch={arch}").gpu
    own = (gpu.limits.threads, gpu.limits.blocks, gpu.limits.shared_memory // 1024)
    assert (gpu.multiprocessors, *own, gpu.fma_per_cycle, gpu.mma_per_cycle) == SHEETS[arch]
    # a thread block may have what an SM has, but for what the driver takes
    assert gpu.dynamic_shared_memory_per_block <= gpu.limits.shared_memory - gpu.limits.reserved_shared
    assert gpu.limits.blocks_by_shared(gpu.dynamic_shared_memory_per_block) == 1


@pytest.mark.parametrize(
    ("arch", "near"), [("sm_88", "sm_87"), ("sm_103a", "sm_100a"), ("sm_121", "sm_120"), ("sm_52", "sm_50")]
)
def test_an_unknown_architecture_is_taken_for_the_nearest_before_it(arch: str, near: str) -> None:
    one, other = (Target(f"cuda -arch={a}").gpu for a in (arch, near))
    assert (one.multiprocessors, one.limits, one.clock) == (other.multiprocessors, other.limits, other.clock)


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_of_the_table_is_whole(name: str) -> None:
    gpu = Target(f"cuda -model={name}").gpu
    assert gpu.limits.registers >= gpu.registers_per_block and gpu.limits.threads >= gpu.max_threads_per_block
    assert (gpu.mma_per_cycle > 0) == (GPUS[name].arch >= "sm_70" or len(GPUS[name].arch) > 6)
