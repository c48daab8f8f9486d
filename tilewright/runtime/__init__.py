"""The runtime of compiled programs: devices, arrays, modules and packed functions.

Nothing here imports the compiler. Names are loaded on first use, so that importing one light submodule
(`runtime.errors`) does not bring in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..homes import home_of, lazily

if TYPE_CHECKING:
    from . import (
        container,
        errors,
        module,
        ndarray,
        params,
        profiler_vm,
        profiling,
        registry,
        threads,
        timing,
        vm,
    )
    from . import ndarray as nd
    from .cheader import c_header
    from .container import ADT, ShapeTuple, String
    from .devices import (
        Device,
        DeviceApi,
        cl,
        cpu,
        cuda,
        device,
        ext_dev,
        gpu,
        hexagon,
        metal,
        opencl,
        register_device_api,
        rocm,
        vulkan,
        webgpu,
    )
    from .dtypes import DataType
    from .errors import LoadError, TVMError
    from .external import ExternalModule
    from .library import Library, SharedLibrary
    from .module import LibraryModule, Module, enabled, load_module, system_lib
    from .ndarray import NDArray, array, empty, from_dlpack, numpyasarray
    from .object_path import ObjectPath
    from .params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
    from .profiler import profile_model
    from .profiling import Profile
    from .registry import (
        PackedFunc,
        convert,
        get_global_func,
        list_global_func_names,
        register_func,
        remove_global_func,
    )
    from .threads import num_threads
    from .timing import BenchmarkResult, time_evaluator

__all__ = [
    "ADT",
    "BenchmarkResult",
    "DataType",
    "Device",
    "DeviceApi",
    "ExternalModule",
    "Library",
    "LibraryModule",
    "LoadError",
    "Module",
    "NDArray",
    "ObjectPath",
    "PackedFunc",
    "Profile",
    "ShapeTuple",
    "SharedLibrary",
    "String",
    "TVMError",
    "array",
    "c_header",
    "cl",
    "container",
    "convert",
    "cpu",
    "cuda",
    "device",
    "empty",
    "enabled",
    "errors",
    "ext_dev",
    "from_dlpack",
    "get_global_func",
    "gpu",
    "hexagon",
    "list_global_func_names",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "metal",
    "module",
    "nd",
    "ndarray",
    "num_threads",
    "numpyasarray",
    "opencl",
    "params",
    "profile_model",
    "register_device_api",
    "register_func",
    "registry",
    "remove_global_func",
    "rocm",
    "save_param_dict",
    "save_param_dict_to_file",
    "system_lib",
    "threads",
    "time_evaluator",
    "timing",
    "vulkan",
    "webgpu",
]

_NAMES = {
    "cheader": "c_header",
    "container": "ADT ShapeTuple String",
    "object_path": "ObjectPath",
    "devices": "Device DeviceApi device register_device_api "
    "cl cpu cuda ext_dev gpu hexagon metal opencl rocm vulkan webgpu",
    "dtypes": "DataType",
    "errors": "LoadError TVMError",
    "external": "ExternalModule",
    "library": "Library SharedLibrary",
    "module": "LibraryModule Module enabled load_module system_lib",
    "ndarray": "NDArray array empty from_dlpack numpyasarray",
    "params": "load_param_dict load_param_dict_from_file save_param_dict save_param_dict_to_file",
    "profiler": "profile_model",
    "profiling": "Profile",
    "registry": "PackedFunc convert get_global_func list_global_func_names register_func remove_global_func",
    "threads": "num_threads",
    "timing": "BenchmarkResult time_evaluator",
}


def _of_programs(name: str) -> Any:
    """The constructor of constants and the base of nodes, of which this is a classic home."""
    own = {"const": "const", "Object": "Node"}.get(name)
    if own is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(home_of("expressions"), own)


__getattr__ = lazily(
    __name__,
    _NAMES,
    "container errors module nd=ndarray ndarray params profiler_vm profiling registry threads timing vm",
    _of_programs,
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
