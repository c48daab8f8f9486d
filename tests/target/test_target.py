"""Targets: every way to write one, what is refused, and the text of the refusals."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

from tilewright.ir.errors import TargetError, TVMError, UnsupportedError
from tilewright.ir.say_once import IgnoredWarning
from tilewright.target import (
    Target,
    VirtualDevice,
    arm_cpu,
    bifrost,
    create,
    cuda,
    hexagon,
    intel_graphics,
    list_tags,
    mali,
    register_tag,
    riscv_cpu,
    rocm,
    vta,
)
from tilewright.target import target as target_module
from tilewright.target.gpus import GPUS


def refusal(given: object, **more: object) -> str:
    with pytest.raises(TargetError) as caught:
        Target(given, **more)  # type: ignore[arg-type]
    return str(caught.value)


# -- writing ------------------------------------------------------------------------------------
TEXTS = {
    "llvm": "llvm -keys=cpu",
    "  llvm  ": "llvm -keys=cpu",
    "llvm -mcpu=znver4 -mattr=+avx2,+fma -num-cores=4": (
        "llvm -keys=cpu -mattr=+avx2,+fma -mcpu=znver4 -num-cores=4"
    ),
    "llvm -mtriple=aarch64-linux-gnu -keys=cpu,arm_cpu -device=arm_cpu -model=pi": (
        "llvm -keys=cpu,arm_cpu -device=arm_cpu -model=pi -mtriple=aarch64-linux-gnu"
    ),
    "llvm -mtriple=aarch64-linux-gnu": "llvm -keys=arm_cpu,cpu -mtriple=aarch64-linux-gnu",
    "llvm -target=armv7l-linux-gnueabihf": "llvm -keys=arm_cpu,cpu -mtriple=armv7l-linux-gnueabihf",
    "llvm -mcpu skylake -mattr -avx2": "llvm -keys=cpu -mattr=-avx2 -mcpu=skylake",
    "llvm --system-lib": "llvm -keys=cpu -system-lib=1",
    "llvm -system-lib=0 -fast-math": "llvm -keys=cpu -fast-math=1 -system-lib=0",
    "llvm -libs=cblas,mkl": "llvm -keys=cpu -libs=cblas,mkl",
    "llvm -cl-opt='-a b,-c'": "llvm -keys=cpu -cl-opt='-a b,-c'",
    "c -march=armv7e-m -mcpu=cortex-m7": "c -keys=cpu -march=armv7e-m -mcpu=cortex-m7",
    "cuda": "cuda -keys=cuda,gpu -max_num_threads=1024 -thread_warp_size=32",
    "cuda -arch=sm_90a": "cuda -keys=cuda,gpu -arch=sm_90a -max_num_threads=1024 -thread_warp_size=32",
    "cuda -mcpu=sm_70": "cuda -keys=cuda,gpu -arch=sm_70 -max_num_threads=1024 -thread_warp_size=32",
    "opencl -device=mali": (
        "opencl -keys=mali,opencl,gpu -device=mali -max_num_threads=256 "
        "-max_shared_memory_per_block=16384 -max_threads_per_block=256 -thread_warp_size=1"
    ),
    "vta": "ext_dev -keys=vta -device=vta",
    "hip": (
        "rocm -keys=rocm,gpu -max_num_threads=256 -max_shared_memory_per_block=65536 "
        "-max_threads_per_block=256 -thread_warp_size=64"
    ),
}


@pytest.mark.parametrize("given", TEXTS)
def test_text_becomes_canonical(given: str) -> None:
    made = Target(given)
    assert str(made) == TEXTS[given]
    assert Target(str(made)) == made
    assert Target(made.export()) == made
    assert Target(json.dumps(made.export())) == made
    assert Target(made.to_json()) == made


def test_every_kind_can_be_made_and_read_back() -> None:
    kinds = Target.list_kinds()
    assert {"llvm", "c", "cuda", "opencl", "rocm", "metal", "vulkan", "webgpu", "ext_dev"} <= set(kinds)
    for name in kinds:
        made = Target(name)
        assert made.kind.name == name and str(made.kind) == name
        assert Target(str(made)) == made
        assert made.get_target_device_type() == made.get_kind_attr("device_type")


def test_device_types_are_those_of_dlpack() -> None:
    numbers = {"llvm": 1, "c": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "rocm": 10, "webgpu": 15}
    assert {k: Target(k).get_target_device_type() for k in numbers} == numbers


def test_dict_json_and_host() -> None:
    data = {"kind": "cuda", "arch": "sm_80", "host": {"kind": "llvm", "mcpu": "haswell"}}
    made = Target(data)
    assert made.host == Target("llvm -mcpu=haswell")
    assert data == {"kind": "cuda", "arch": "sm_80", "host": {"kind": "llvm", "mcpu": "haswell"}}
    assert Target(json.dumps(data)) == made
    assert Target("cuda -arch=sm_80", host="llvm -mcpu=haswell") == made
    assert Target("cuda -arch=sm_80").with_host({"kind": "llvm", "mcpu": "haswell"}) == made
    assert made != made.without_host() and str(made) == str(made.without_host())
    assert made.export()["host"] == {"kind": "llvm", "tag": "", "keys": ["cpu"], "mcpu": "haswell"}
    assert Target({"kind": "llvm", "mattr": ["+avx2", "+fma"]}).mattr == ["+avx2", "+fma"]
    assert Target({"kind": "llvm", "mcpu": None, "num-cores": "8"}) == Target("llvm -num-cores=8")


def test_a_target_of_a_target_is_the_same() -> None:
    made = Target("cuda", host="llvm")
    assert Target(made) == made and create(made) is made
    assert create("llvm") == Target("llvm")
    assert Target(made, host="llvm") == made
    assert Target.canon_target(None) is None and Target.canon_target(made) is made


def test_parts() -> None:
    made = Target("llvm -mattr=+avx2 -libs=mkl -device=arm_cpu -mtriple=aarch64 -mcpu=cortex-a53")
    assert (made.mcpu, made.mattr, made.libs) == ("cortex-a53", ["+avx2"], ["mkl"])
    assert made.device_name == "arm_cpu" and made.keys == ("arm_cpu", "cpu")
    assert Target("llvm").model == "unknown" and Target("llvm").mcpu == ""
    gpu = Target("cuda -model=v100 -libs=cudnn")
    assert (gpu.max_num_threads, gpu.thread_warp_size, gpu.model) == (1024, 32, "v100")
    assert gpu.max_shared_memory_per_block == 49152 and gpu.l2_cache_size_bytes == 6 * 1024 * 1024
    assert gpu.arch == "sm_70" and gpu.supports_integer_dot_product
    assert gpu.is_gpu and not gpu.is_cpu
    assert gpu.max_function_args == -1 and Target("metal").max_function_args == 31
    assert not Target("cuda -arch=sm_60").supports_integer_dot_product
    with pytest.raises(TypeError):
        made.attrs["mcpu"] = "x"  # type: ignore[index]


def test_a_device_has_the_threads_that_it_is_said_to_use() -> None:
    assert Target("opencl").attrs["max_threads_per_block"] == 256
    assert Target("opencl -max_num_threads=512").attrs["max_threads_per_block"] == 512
    assert Target("opencl -max_num_threads=64").attrs["max_threads_per_block"] == 256


def test_a_processor_has_no_warp() -> None:
    with pytest.raises(TargetError, match="does not set -thread_warp_size"):
        _ = Target("llvm").thread_warp_size


def test_with_attr() -> None:
    assert Target("llvm").with_attr("num-cores", 3) == Target("llvm -num-cores=3")
    assert Target("llvm -mcpu=haswell").with_attr("mcpu", None) == Target("llvm")
    with pytest.raises(TargetError, match="no option -speed"):
        Target("llvm").with_attr("speed", 3)


def test_equality_hash_copy_pickle() -> None:
    a, b = Target("llvm -mcpu=haswell -num-cores=2"), Target("llvm -num-cores=2 -mcpu=haswell")
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert a != Target("llvm") and a != "llvm -keys=cpu"
    assert copy.deepcopy(a) is a
    with_host = Target("cuda", host=a)
    assert pickle.loads(pickle.dumps(with_host)) == with_host


# -- context ------------------------------------------------------------------------------------
def test_current() -> None:
    assert Target.current() is None
    with pytest.raises(TargetError, match="no current target"):
        Target.current(allow_none=False)
    with Target("llvm -num-cores=1") as outer:
        assert Target.current() is outer
        with Target("cuda") as inner:
            assert Target.current() is inner and Target.target_or_current(None) is inner
            assert Target.target_or_current("llvm") == Target("llvm")
        assert Target.current() is outer
        with pytest.raises(RuntimeError), Target("c"):
            raise RuntimeError
        assert Target.current() is outer
    assert Target.current() is None


# -- refusals -----------------------------------------------------------------------------------
def test_unknown_kind() -> None:
    start, _, known = refusal("lvm").partition(" Known are: ")
    assert start == "unknown target kind 'lvm'; did you mean llvm?"
    built_in = "c, cuda, ext_dev, hip, llvm, metal, opencl, rocm, vta, vulkan, webgpu".split(", ")
    assert set(built_in) <= set(known.split(", "))  # and kinds that a program has registered
    assert "unknown target kind 'stackvm'. Known are: c," in refusal("stackvm -x=1")
    assert "unknown target kind 'CUDA'; did you mean cuda?" in refusal({"kind": "CUDA"})


def test_unknown_option_is_named_with_its_neighbours() -> None:
    said = refusal("llvm -mcpux=haswell")
    assert said.startswith("target 'llvm -mcpux=haswell': llvm has no option -mcpux; did you mean mcpu?")
    assert "Known are: cl-opt," in said and "num-cores" in said
    assert "llvm has no option -arch" in refusal("llvm -arch=sm_80")
    assert "cuda has no option -mattr" in refusal({"kind": "cuda", "mattr": ["+x"]})


def test_unknown_tag() -> None:
    said = refusal("nvidia/geforce-rtx-3091")
    assert said.startswith(
        "unknown target tag 'nvidia/geforce-rtx-3091'; did you mean nvidia/geforce-rtx-3090"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "an empty string is not a target"),
        ("-mcpu=haswell", "must begin with its kind"),
        ("llvm haswell", "'haswell' is not an option; options begin with `-`"),
        ("llvm -", "'-' is not an option"),
        ("llvm -mcpu", "-mcpu needs a value"),
        ("llvm -mcpu=", "-mcpu needs a value"),
        ("llvm -num-cores=0", "-num-cores takes an integer of at least 1, not 0"),
        ("llvm -num-cores=-2", "-num-cores takes an integer of at least 1, not -2"),
        ("llvm -num-cores=four", "-num-cores takes an integer of at least 1, not 'four'"),
        ("llvm -num-cores=2.5", "-num-cores takes an integer of at least 1, not '2.5'"),
        ({"kind": "llvm", "num-cores": 2.5}, "-num-cores takes an integer of at least 1, not 2.5"),
        ({"kind": "llvm", "num-cores": True}, "-num-cores needs a value"),
        ({"kind": "llvm", "mcpu": 5}, "-mcpu takes text, not 5 (int)"),
        ({"kind": "llvm", "mattr": 5}, "-mattr takes names separated by commas, not 5"),
        ({"mcpu": "haswell"}, "has no kind"),
        ("{bad", "looks like JSON and is not"),
        ("[1]", "unknown target kind"),
        ("llvm -system-lib=maybe", "-system-lib is a switch: it takes 0 or 1, not 'maybe'"),
        ("llvm -mfloat-abi=hardy", "-mfloat-abi is 'hardy'; did you mean hard?"),
        ("llvm -opt-level=4", "-opt-level goes from 0 to 3, not 4"),
        ("llvm -mcpu=haswell -mcpu=skylake", "-mcpu is given twice, as 'haswell' and as 'skylake'"),
        ("cuda -arch=sm_70 -mcpu=sm_80", "-arch is given twice"),
        ("llvm -mattr=+avx2,-avx2", "-mattr switches 'avx2' both on and off"),
        ("llvm -mattr=avx2", "-mattr takes +feature and -feature, not 'avx2'; write +avx2"),
        ("llvm -mattr=+", "-mattr takes +feature"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver4", "-mcpu=znver4 is a CPU of x86_64"),
        ("llvm -mtriple=z80-linux", "begins with no known architecture"),
        ("llvm -mtriple=nvptx64-nvidia-cuda", "is a GPU; use the kind cuda"),
        ("llvm -device=arm_cpu -mcpu=haswell", "-device=arm_cpu, but the processor is x86_64"),
        ("cuda -arch=80", "-arch is '80'; it looks like sm_80"),
        ("llvm -mcpu='a", "No closing quotation"),
    ],
)
def test_refusals(given: object, reason: str) -> None:
    assert reason in refusal(given)


def test_two_hosts() -> None:
    with_host = {"kind": "cuda", "host": "llvm"}
    assert "has the host llvm -keys=cpu already" in refusal(with_host, host="c")
    with pytest.raises(TypeError, match="a target is text, a dict or a Target, not 5"):
        Target(5)  # type: ignore[arg-type]


def test_target_errors_are_tvm_errors_and_value_errors() -> None:
    assert issubclass(TargetError, TVMError) and issubclass(TargetError, ValueError)


# -- tags and models ----------------------------------------------------------------------------
def test_tags() -> None:
    tags = list_tags()
    assert {"nvidia/geforce-rtx-3070", "nvidia/nvidia-h200", "raspberry-pi/4b-aarch64"} <= set(tags)
    for name, made in tags.items():
        assert made.tag == name and Target(made.export()) == made
    board = Target("nvidia/jetson-nano")
    assert board.host is not None and board.host.mcpu == "cortex-a57" and board.arch == "sm_53"
    assert Target({"tag": "nvidia/nvidia-a100"}) == Target("nvidia/nvidia-a100")
    assert Target("raspberry-pi/4b-aarch64").num_cores == 4


def test_register_tag() -> None:
    made = register_tag("test/board", {"kind": "llvm", "mcpu": "cortex-a72"}, override=True)
    assert Target("test/board") == made
    with pytest.raises(TargetError, match="exists already"):
        register_tag("test/board", {"kind": "c"})
    with pytest.raises(TargetError):
        register_tag("test/broken", {"kind": "llvm", "mcup": "x"})
    assert "unknown target tag" in refusal("test/broken")


@pytest.mark.parametrize(
    ("model", "arch", "dynamic", "sms", "registers"),
    [
        ("jetson-nano", "sm_53", 49152, 1, 32768),
        ("v100", "sm_70", 98304, 80, 65536),
        ("t4", "sm_75", 65536, 40, 65536),
        ("a100", "sm_80", 166912, 108, 65536),
        ("3090", "sm_86", 101376, 82, 65536),
        ("4090", "sm_89", 101376, 128, 65536),
        ("h100", "sm_90a", 232448, 132, 65536),
        ("h200", "sm_90a", 232448, 132, 65536),
    ],
)
def test_models(model: str, arch: str, dynamic: int, sms: int, registers: int) -> None:
    made = cuda(model)
    assert made.arch == arch and made.gpu.dynamic_shared_memory_per_block == dynamic
    assert made.gpu.multiprocessors == sms and made.gpu.registers_per_block == registers
    assert made.gpu.max_threads_per_block == 1024 and made.gpu.warp_size == 32


def test_a_model_gives_way_to_what_is_said() -> None:
    made = Target("cuda -model=a100 -arch=sm_70 -max_shared_memory_per_block=1024")
    assert made.arch == "sm_70" and made.max_shared_memory_per_block == 1024
    assert made.gpu.multiprocessors == 108
    assert cuda("unknown").attrs["model"] == "unknown" and "arch" not in cuda().attrs


# -- makers -------------------------------------------------------------------------------------
def test_makers() -> None:
    assert cuda("v100", options="-libs=cudnn").libs == ["cudnn"]
    assert cuda(arch="sm_61").arch == "sm_61"
    assert rocm("gfx900").kind.name == "rocm" and rocm("gfx900").model == "gfx900"
    assert mali().keys == ("mali", "opencl", "gpu") and bifrost("t").device_name == "bifrost"
    assert intel_graphics().thread_warp_size == 16
    assert vta("pynq").keys == ("vta", "cpu") and vta().get_target_device_type() == 12
    board = arm_cpu("rasp4b64")
    assert board.mcpu == "cortex-a72" and board.keys == ("arm_cpu", "cpu") and board.arch == "aarch64"
    assert arm_cpu("mine", options=["-mtriple=aarch64-linux-gnu", "-mattr=+neon"]).model == "mine"
    assert riscv_cpu("sifive-u74").attrs["mabi"] == "lp64d"
    with pytest.raises(TargetError, match="unknown RISC-V processor 'u75'"):
        riscv_cpu("u75")
    with pytest.raises(UnsupportedError, match="Hexagon"):
        hexagon("v68")


# -- canonical forms ----------------------------------------------------------------------------
def test_canon() -> None:
    made, host = Target.canon_target_and_host("cuda", "llvm")
    assert made is not None and host == Target("llvm") and made.host == host
    assert Target.canon_target_and_host(None) == (None, None)
    with pytest.raises(TargetError, match="a host was given without a target"):
        Target.canon_target_and_host(None, "llvm")
    several = Target.canon_multi_target_and_host({"cpu": "llvm", "cuda": "cuda"}, "llvm -num-cores=1")
    assert [t.kind.name for t in several] == ["llvm", "cuda"]
    assert all(t.host == Target("llvm -num-cores=1") for t in several)
    assert Target.canon_multi_target("llvm") == [Target("llvm")]
    assert Target.canon_multi_target({"kind": "llvm"}) == [Target("llvm")]
    assert Target.canon_multi_target(["llvm", "c"]) == [Target("llvm"), Target("c")]
    assert Target.canon_multi_target(None) == []
    mapped, host = Target.canon_target_map_and_host({"llvm": 1, "cuda": 2}, "llvm")
    assert mapped == {Target("llvm", "llvm"): 1, Target("cuda", "llvm"): 2} and host == Target("llvm")
    assert Target.canon_target_map_and_host(None) == (None, None)


# -- devices ------------------------------------------------------------------------------------
class FakeDevice:
    """What the runtime's device tells, for tests."""

    def __init__(self, device_type: int, exist: bool = True) -> None:
        self.device_type, self.device_id, self.exist = device_type, 0, exist
        self.max_threads_per_block, self.max_shared_memory_per_block, self.warp_size = 512, 1000, 32
        self.multi_processor_count, self.compute_version = 7, "8.6"


@pytest.mark.parametrize(("told", "want"), [(4917, 4917), (0, 448), (None, 448)])
def test_a_device_tells_its_bandwidth(told: int | None, want: int) -> None:
    """… or has that of a small GPU of its architecture."""
    device = FakeDevice(2)
    device.memory_bandwidth = told  # type: ignore[attr-defined]
    made = Target.from_device(device)
    assert made.gpu.bandwidth == want and Target(str(made)).gpu == made.gpu
    assert Target("cuda -model=h200").gpu.bandwidth == 4800


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA GeForce RTX 3080 Ti", ""),
        ("Tesla T4", "t4"),
        ("NVIDIA Graphics Device", ""),
    ],
)
def test_a_device_with_a_known_name_has_the_figures_of_its_model(name: str, model: str) -> None:
    device = FakeDevice(2)
    device.device_name = name  # type: ignore[attr-defined]
    made = Target.from_device(device)
    assert made.attrs.get("model", "") == model
    assert made.gpu.multiprocessors == 7 and made.arch == "sm_86"  # the device's own answers come first
    assert not model or made.gpu.clock == GPUS[model].clock


def test_from_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Target.from_device("cpu") == Target("llvm") == Target.from_device(FakeDevice(1))
    made = Target.from_device(FakeDevice(2))
    assert made.arch == "sm_86" and made.max_num_threads == 512 and made.gpu.multiprocessors == 7
    with pytest.raises(TargetError, match="is not there"):
        Target.from_device(FakeDevice(2, exist=False))
    with pytest.raises(TargetError, match="no target kind runs on"):
        Target.from_device(FakeDevice(77))
    monkeypatch.setattr(target_module, "_device_lookup", None)
    with pytest.raises(UnsupportedError, match="give the device itself"):
        Target.from_device("cuda:0")
    target_module.register_device_lookup(lambda text: FakeDevice(2))
    assert Target.from_device("cuda:0") == made


def test_virtual_device() -> None:
    assert VirtualDevice().is_fully_unconstrained
    one = VirtualDevice(FakeDevice(2), "cuda", "global")
    assert (one.device_type_int, one.virtual_device_id, one.target) == (2, 0, Target("cuda"))
    assert one == VirtualDevice(FakeDevice(2), Target("cuda"), "global") and hash(one)
    assert VirtualDevice(target="opencl").device_type == 4
    assert not one.is_fully_unconstrained


def test_importing_targets_loads_nothing_heavy() -> None:
    code = (
        "import sys, tilewright.target as t;"
        "t.Target('cuda -model=a100').machine; t.Target('llvm -mcpu=haswell').machine;"
        "print('llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("llvm -libs=cblas", "libs"),
        ("llvm -fast-math-nnan", "fast-math-nnan"),
        ({"kind": "cuda", "libs": ["cudnn"]}, "libs"),
    ],
)
def test_an_option_without_effect_says_so_once(
    text: Any, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.ir.say_once._said", set())
    with pytest.warns(IgnoredWarning) as caught:
        for _ in range(2):
            Target(text)
    (one,) = caught
    assert str(one.message).startswith(f"target option -{option} does nothing here: ")
    assert one.filename == __file__
