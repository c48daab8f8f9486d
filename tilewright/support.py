"""What this installation can do: the facts of `tilewright doctor` and of reports of bugs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from . import config, cpus
from .runtime.devices import DRIVERS, Device, device_api
from .runtime.link import find_cc
from .version import __version__

_PACKAGES = (
    "llvmlite", "numpy", "ml_dtypes", "onnx", "torch", "keras", "tensorflow", "onnxruntime", "xgboost", "xgboost-cpu",
    "cuda-bindings", "nvidia-cuda-nvrtc", "pyopencl", "distributed", "pandas",
)  # fmt: skip
# The features that code generation makes use of; a processor has hundreds.
_FEATURES = (
    "sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avxvnni", "avx512vnni", "avx512bf16",
    "avx512fp16", "amx-tile", "amx-int8", "amx-bf16",
    "neon", "dotprod", "fullfp16", "bf16", "i8mm", "sve", "sve2", "sme", "v",
)  # fmt: skip


def facts() -> dict[str, Any]:
    """The machine, the compilers, the devices and the caches, as JSON can hold them. Nothing is compiled."""
    return {
        "tilewright": {"version": __version__, "path": str(Path(__file__).parent)},
        "python": {
            "version": platform.python_version(),
            "path": sys.executable,
            "platform": platform.platform(),
        },
        "cpu": _cpu(),
        "memory": _memory(),
        "llvm": _llvm(),
        "c_compiler": _c_compiler(),
        "devices": {Device(mask).kind: _devices(mask) for mask in DRIVERS},
        "caches": [
            _folder("machine code", config.cache_dir.value),
            _folder("machines", config.config_dir.value),
        ],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


# -- parts ------------------------------------------------------------------------------------------
def _cpu() -> dict[str, Any]:
    allowed, quota = cpus.affinity(), cpus.quota()
    data: dict[str, Any] = {
        "name": _cpu_name(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count() or 1,
        "affinity": len(allowed),
        "quota": quota,
        "threads": config.num_threads.value,
        "threads_from": _threads_from(quota, len(allowed)),
    }
    try:
        from .target import Target
        from .target.host import host_features

        machine = Target("llvm").cpu
        found = host_features()
    except (ImportError, RuntimeError, OSError) as error:  # LLVM is not there: `_llvm` says why
        return {**data, "error": str(error)}
    return {
        **data,
        "llvm_name": machine.cpu,
        "features": [name for name in _FEATURES if name in found],
        "vector_bits": machine.vector_bits,
        "caches": machine.cache_sizes._asdict(),
        "gflops": machine.peak_gflops(),
        "figures": machine.source,
    }


def _threads_from(quota: float | None, allowed: int) -> str:
    """What determines the number of threads."""
    if os.environ.get(config.num_threads.variable):
        return config.num_threads.variable
    return "quota" if quota is not None and quota < allowed else "affinity"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    found = [v.strip() for k, _, v in (line.partition(":") for line in lines) if k.strip() == "model name"]
    return next(iter(found), "") or platform.processor() or platform.machine()


def _memory() -> dict[str, Any]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = None
    return {"bytes": total}


def _llvm() -> dict[str, Any]:
    try:
        from .codegen.llvm.engine import llvm_version

        binding, version = llvm_version()[:2]
    except (ImportError, OSError) as error:
        return {"error": str(error)}
    return {"llvmlite": binding, "version": version}


def _c_compiler() -> dict[str, Any]:
    command = find_cc()
    if command is None:
        return {"error": "there is none"}
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=10)
        version = next(iter((done.stdout or done.stderr).splitlines()), "")
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"command": command, "error": str(error)}
    return {"command": command, "version": version}


def _devices(mask: int) -> dict[str, Any]:
    """The devices of a driver, or the reason why there are none."""
    first = Device(mask)
    try:
        api = device_api(first)
    except ValueError as error:
        return {"found": [], "error": str(error).partition(": ")[2].partition("; available are")[0]}
    found = []
    for index in range(api.count()):
        device = Device(mask, index)
        found.append(
            {
                "name": device.device_name,
                "compute_version": device.compute_version,
                "memory": device.total_global_memory,
                "driver": device.driver_version,
                "api": None if device.api_version is None else str(device.api_version),
            }
        )
    return {"found": found, "error": _no_compiler(api)}


def _no_compiler(api: Any) -> str:
    """Why programs for a device cannot be compiled here; empty if they can."""
    try:
        api.compilers()
    except Exception as error:  # whatever a driver raises
        return str(error)
    return ""


def _folder(name: str, path: Path) -> dict[str, Any]:
    """A folder of files that are kept, and its size."""
    total = count = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += os.lstat(os.path.join(folder, file)).st_size
                count += 1
            except OSError:
                continue
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    data: dict[str, Any] = {
        "name": name,
        "path": str(path),
        "bytes": total,
        "files": count,
        "writable": os.access(place, os.W_OK),
    }
    if name == "machine code":
        data |= {"limit": config.cache_size.value << 20, "used": config.cache.value}
    return data


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# -- the classic names ------------------------------------------------------------------------------
def libinfo() -> dict[str, str]:
    """Versions of what is installed, and the devices that are here."""
    known = facts()
    found = {
        "TVM_VERSION": known["tilewright"]["version"],
        "LLVM_VERSION": known["llvm"].get("version", "NOT-FOUND"),
        "GIT_COMMIT_HASH": "NOT-FOUND",
        "USE_LLVM": "ON" if known["llvm"].get("version") else "OFF",
    }
    # parts of TVM that a build may lack, and that are always here
    found |= dict.fromkeys(("USE_GRAPH_EXECUTOR", "USE_PROFILER", "USE_RPC", "USE_THREADS"), "ON")
    found |= {
        name.upper().replace("-", "_"): version or "NOT-FOUND" for name, version in known["packages"].items()
    }
    for kind, about in known["devices"].items():
        found[f"USE_{kind.upper()}"] = "ON" if about["found"] else "OFF"
    return found


def describe() -> None:
    """Print the facts, for a report of a bug; `tilewright doctor` tests the installation besides."""
    print("\n".join(lines_of(facts())))


# -- text -------------------------------------------------------------------------------------------
def lines_of(known: dict[str, Any]) -> list[str]:
    """The facts as lines: what, and how it is."""
    return [f"{name:<12} {text}".rstrip() for name, text in _told(known)]


def _told(known: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("tilewright", f"{known['tilewright']['version']} in {known['tilewright']['path']}"),
        ("Python", f"{known['python']['version']} on {known['python']['platform']}"),
        *_cpu_rows(known["cpu"]),
    ]
    if known["memory"]["bytes"]:
        rows.append(("memory", size_text(known["memory"]["bytes"])))
    llvm, cc = known["llvm"], known["c_compiler"]
    rows.append(
        (
            "LLVM",
            f"missing: {llvm['error']}"
            if "error" in llvm
            else f"{llvm['version']} (llvmlite {llvm['llvmlite']})",
        )
    )
    rows.append(
        (
            "C compiler",
            f"missing: {cc['error']}" if "error" in cc else f"{' '.join(cc['command'])}: {cc['version']}",
        )
    )
    for kind, about in known["devices"].items():
        for device in about["found"]:
            size = f", {size_text(device['memory'])}" if device["memory"] else ""
            driver = f", driver {device['driver']}" if device["driver"] else ""
            rows.append((kind, f"{device['name']}{size}{driver}"))
        if about["error"]:
            rows.append((kind, f"{'cannot compile' if about['found'] else 'none'}: {about['error']}"))
    for cache in known["caches"]:
        limit = f" of {size_text(cache['limit'])}" if cache.get("limit") else ""
        state = "" if cache["writable"] else ", not writable"
        state += "" if cache.get("used", True) else ", switched off"
        rows.append(
            (
                "cache" if cache.get("limit") else "figures",
                f"{cache['path']}: {size_text(cache['bytes'])}{limit} in {cache['files']} files{state}",
            )
        )
    here = [f"{name} {version}" for name, version in known["packages"].items() if version]
    rows.append(("packages", ", ".join(here)))
    return rows


def _cpu_rows(cpu: dict[str, Any]) -> list[tuple[str, str]]:
    quota = "no quota" if cpu["quota"] is None else f"a quota of {cpu['quota']:g}"
    where = {
        "quota": "as the quota of the control groups allows",
        "affinity": "one for each CPU of the affinity",
    }
    rows = [
        ("CPU", f"{cpu['name']} ({cpu.get('llvm_name', cpu['architecture'])})"),
        ("", f"{cpu['cpus']} CPUs, {cpu['affinity']} in the affinity of the process, {quota}"),
        ("threads", f"{cpu['threads']}, {where.get(cpu['threads_from'], 'from ' + cpu['threads_from'])}"),
    ]
    if "features" in cpu:
        sizes = ", ".join(
            f"{n.upper()} {size_text(s)}" for n, s in cpu["caches"].items() if s and n != "line"
        )
        known = {
            "table": "of the table of known processors",
            "calibrated": "measured by `tilewright calibrate`",
        }
        rows += [
            ("features", " ".join(cpu["features"])),
            ("caches", sizes),
            (
                "peak",
                f"{cpu['gflops']:.0f} GFLOP/s float32 with one core, by figures "
                f"{known.get(cpu['figures'], cpu['figures'])}",
            ),
        ]
    return rows


def size_text(size: float) -> str:
    """A number of bytes as text."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
