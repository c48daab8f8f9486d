"""Running programs of the virtual machine: `VirtualMachine(executable, device).invoke("main", x)`.

executable: functions (instructions over registers), kernels in a library, constants
saved as one library, `exe.export_library("net.so")`, or as code and library, `code, lib = exe.save()`
"""

from __future__ import annotations

import ctypes
import json
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from ..forks import new_in_child
from .arguments import in_order
from .devices import Device
from .dtypes import ELEMENTS
from .errors import ArgumentTypeError, ArgumentValueError, LoadError, TVMError
from .executor import Executor
from .json_reader import as_table, read_json
from .model import LAUNCHES
from .module import Module
from .ndarray import ALIGNMENT, NDArray, array, numpyasarray
from .params import load_param_dict, save_param_dict
from .pool import PoolReport
from .recursion import deep_calls
from .registry import PackedFunc
from .seal import check_seal, sealed
from .timing import BenchmarkResult, time_evaluator
from .versions import Version, Versions
from .vm_code import FunctionText, Program, program_source
from .vm_values import (
    DEPTH,
    Cell,
    Closure,
    Data,
    HostTensors,
    Missing,
    Tail,
    Tensor,
    called,
    differ,
    fits,
    misfit,
    missing,
    negative,
    no_case,
    no_clause,
    small,
    too_large,
)
from .vm_verify import parse_program, verify

VM: Final = "vm"  # the key in a library's metadata
_MAGIC = b"TWVM\x01\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class VMMemoryReport:
    """The bytes of an executable's constants, and of the pool of results and intermediate tensors."""

    weights: int
    pool: PoolReport

    @property
    def peak(self) -> int:
        return self.weights + self.pool.total

    def __str__(self) -> str:
        return f"weights  {self.weights:>14,} bytes\n{self.pool}"


class Executable:
    """A compiled program, the result of `relay.vm.compile`."""

    def __init__(
        self,
        program: Program,
        constants: Sequence[NDArray],
        lib: Module,
        open_kernel: Callable[[int, list[NDArray]], list[NDArray]] | None = None,
    ) -> None:
        self.program, self.constants, self.lib = program, list(constants), lib
        self.open_kernel = open_kernel
        self.versions: Versions | None = None  # what compiles `main` for sizes that recur

    def native(self, symbol: str) -> Any:
        """The compiled function of a kernel."""
        return self.lib.get_function(symbol)

    def compile_missing(self, number: int) -> None:
        """Compile kernels at their first use."""
        raise TVMError("the program calls a kernel that it does not contain")

    # -- contents -------------------------------------------------------------------------
    @property
    def globals(self) -> list[str]:
        """The names of the functions that can be called."""
        return [f.name for f in self.program.functions if f.name and not f.captures]

    @property
    def primitive_ops(self) -> list[str]:
        """The kernels."""
        return list(self.program.kernels)

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters."""
        return [name for name, _, _ in self.program.named(func_name).params]

    def get_function_arity(self, func_name: str) -> int:
        return len(self.program.named(func_name).params)

    @property
    def bytecode(self) -> str:
        """The instructions, for reading."""
        out: list[str] = []
        for i, f in enumerate(self.program.functions):
            head = ", ".join(f"{name}: r{r}" for name, r, _ in f.params)
            out.append(f"f{i} {f.name or 'closure'}({head})")
            _listed(f.body, 1, out)
        return "\n".join(out)

    @property
    def stats(self) -> str:
        """The size of the program, in words."""
        size = sum(c.nbytes for c in self.constants)
        count = sum(_count(f.body) for f in self.program.functions)
        return (
            f"{len(self.program.functions)} functions, {count} instructions, {len(self.program.kernels)} kernels, "
            f"{len(self.constants)} constants of {size:,} bytes"
        )

    # -- out and in --------------------------------------------------------------------------------
    def save(self) -> tuple[bytearray, Module]:
        """The program with its constants as bytes, and the library of its kernels: see `load_exec`."""
        self.refuse_open()
        text = json.dumps(self.program.data(), separators=(",", ":")).encode()
        params = save_param_dict({f"c{i}": c for i, c in enumerate(self.constants)})
        return bytearray(sealed(_MAGIC + struct.pack("<Q", len(text)) + text + params)), self.lib

    @staticmethod
    def load_exec(bytecode: bytes | bytearray, lib: Module) -> Executable:
        """Rebuild the executable from the parts that `save` returned."""
        data = bytes(bytecode)
        if len(data) < 16 or data[:8] != _MAGIC:
            raise LoadError("load_exec: these bytes are not a program of the virtual machine")
        (length,) = struct.unpack("<Q", data[8:16])
        if 16 + length > len(data):
            raise LoadError(
                f"load_exec: truncated: the program has {length} bytes, the data {len(data) - 16}"
            )
        data = data[: check_seal(data, "load_exec")]
        about = read_json(data[16 : 16 + length], "load_exec: the program is damaged")
        program = parse_program(about, "load_exec", lib.info.functions)
        held = load_param_dict(data[16 + length :])
        return Executable(program, _constants(program, held, "load_exec"), lib)

    def export_library(self, file_name: Any, **options: Any) -> str:
        """Write program, kernels and constants as one library: `runtime.load_module` reads it."""
        raise TVMError("a program that was loaded cannot be exported again: copy its file")

    @property
    def mod(self) -> Executable:
        return self

    module = mod

    def refuse_open(self) -> None:
        """Refuse to save kernels that are compiled only when their sizes are known."""
        if self.open_kernel is not None and any(_has_open(f.body) for f in self.program.functions):
            names = ", ".join(self.open_names()) or "some kernels"
            raise TVMError(
                f"the program cannot be saved: {names} can only be compiled for sizes that are known; "
                "give the sizes when the model is imported"
            )

    def open_names(self) -> list[str]:
        """The kernels without code for all sizes."""
        return []


def _constants(program: Program, held: Mapping[str, NDArray], where: str) -> list[NDArray]:
    out = []
    for i, (dtype, shape) in enumerate(program.constants):
        found = held.get(f"c{i}")
        if found is None or found.dtype != dtype or found.shape != shape:
            raise LoadError(f"{where}: damaged: constant {i} should be {dtype} of shape {shape}")
        out.append(found)
    return out


class VMModule(Module):
    """A library that holds a program of the virtual machine: `VirtualMachine(load_module("net.so"), cpu())`."""

    type_key = "vm"

    def __init__(self, inner: Module, data: Any) -> None:
        super().__init__(inner._library, inner.name)
        self.inner = inner
        where = inner._library.name
        self.launches = launching(inner)
        known = {} if self.launches is None else self.launches.info.functions
        program = parse_program(data.get("program"), where, {**self.info.functions, **known})
        held = _inside(inner, data, program, where)
        self.executable = Executable(program, held, self)

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        if self.launches is not None and name in self.launches.info.functions:
            return self.launches.get_function(name)
        return super().get_function(name, query_imports)


def launching(inner: Module) -> Module | None:
    """The functions of a library that launch kernels on a device; None if it has none."""
    data = as_table(inner._library.metadata(), inner._library.name).get(LAUNCHES)
    if data is None:
        return None
    from .device_module import launches_of  # programs for CPUs need nothing of it

    return launches_of(inner, data, "a program for a device")


def _inside(module: Module, data: Any, program: Program, where: str) -> list[NDArray]:
    """The constants in the library itself."""
    symbol, size, offsets = data.get("symbol"), data.get("bytes"), data.get("offsets")
    address = module._library.address(symbol) if isinstance(symbol, str) else 0
    fits = isinstance(size, int) and isinstance(offsets, list) and len(offsets) == len(program.constants)
    if not address or not fits:
        raise LoadError(f"{where}: damaged: the constants of the program are missing")
    assert isinstance(size, int)
    memory = (ctypes.c_uint8 * size).from_address(address)
    whole: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
    whole.flags.writeable = False
    out = []
    for (dtype, shape), at in zip(program.constants, offsets, strict=True):
        kind = ELEMENTS[dtype]
        end = at + int(np.prod(shape, dtype=np.int64)) * kind.itemsize if isinstance(at, int) else -1
        if not 0 <= end <= size or at < 0 or at % ALIGNMENT:
            raise LoadError(f"{where}: damaged: a constant is outside of the memory of the constants")
        made = numpyasarray(whole[at:end].view(kind.numpy).reshape(shape))
        made._owner = module._library  # the owner of the memory
        out.append(made)
    return out


def machine_or(module: Module, metadata: Any) -> Module | None:
    """The module as a program of the virtual machine, if its library contains one."""
    data = metadata.get(VM)
    if data is None:
        return None
    if not isinstance(data, dict):
        raise LoadError(f"{module._library.name}: damaged: the program is not a table")
    return VMModule(module, data)


# ---------------------------------------------------------------------------- running
class VirtualMachine:
    """Calls the functions of an executable, with memory from a pool of its own."""

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2
    timed = False  # whether the times of kernels are recorded

    def __init__(
        self, exe: Any, device: Device | Sequence[Device] | None = None, memory_cfg: Any = None
    ) -> None:
        found = getattr(exe, "executable", exe)
        if not isinstance(found, Executable):
            raise ArgumentTypeError(
                f"VirtualMachine takes what relay.vm.compile or runtime.load_module gives, not {type(exe).__name__}"
            )
        kind = found.program.device
        if device is None:
            device = Device(Device.STR2MASK[kind], 0)
        first = device if isinstance(device, Device) else next(iter(device))
        if first.kind != kind:
            raise TVMError(
                f"the program was compiled for {kind} and cannot run on {first}; give tvm.{kind}(0)"
            )
        self.exe, self.device = found, first
        self.tensors: HostTensors = HostTensors()
        self._writer: type[FunctionText] = FunctionText
        if kind != "cpu":
            from .vm_device import DeviceTensors, DeviceText

            self.tensors, self._writer = DeviceTensors(first), DeviceText
        self.pool = self.tensors.pool
        self._inputs: dict[str, list[Any]] = {}
        self._outputs: list[Any] = []
        self._program: Program | None = None
        self._functions: list[Callable[..., Any]] = []
        self._executors: WeakKeyDictionary[Version, Executor] = WeakKeyDictionary()
        self._executing = new_in_child(threading.Lock())  # their memory is for one call at a time
        self._linked()

    def _linked(self) -> list[Callable[..., Any]]:
        """The functions of the program as Python functions."""
        exe = self.exe
        if self._program is exe.program:
            return self._functions
        natives: list[Any] = [exe.native(k) for k in exe.program.kernels]
        infos = {n.info.name: n.info for n in natives}
        if exe.program.tests is None:
            exe.program.tests = verify(exe.program, infos, saved=False)
        self.source = program_source(exe.program, infos, self.timed, self._writer)
        index = self.device.device_id
        scope: dict[str, Any] = {
            f"k{i}": n._function if n.info.device == "cpu" else n._function[index]
            for i, n in enumerate(natives)
        }
        for i, c in enumerate(exe.constants):
            scope[f"c{i}"] = self.tensors.constant(c)
        fails = [n._fail for n in natives]
        scope.update(
            fail=lambda kernel, code: fails[kernel](code), called=called, Closure=Closure, Tail=Tail, differ=differ,
            small=small, negative=negative, no_case=no_case, no_clause=no_clause, Data=Data, Cell=Cell,
            too_large=too_large, fits=fits, misfit=misfit, prod=math.prod, open_kernel=self._open,
            missing=missing, **self.tensors.callbacks(), **self._timing_callbacks(),
        )  # fmt: skip
        exec(compile(self.source, "<virtual machine>", "exec"), scope)
        self._program = exe.program
        self._numbers = {f.name: i for i, f in enumerate(exe.program.functions) if f.name}
        self._functions = [scope[f"f{i}"] for i in range(len(exe.program.functions))]
        return self._functions

    def _timing_callbacks(self) -> dict[str, Any]:
        """The callback of functions that record times."""
        return {}

    def _open(self, number: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Run a kernel that is compiled for the current sizes."""
        assert self.exe.open_kernel is not None
        made = self.exe.open_kernel(number, [numpyasarray(self.tensors.values(t)) for t in tensors])
        return tuple(map(self.tensors.of_array, made))

    # -- arguments -----------------------------------------------------------------------------
    def set_input(self, /, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a function for `run`."""
        names = self.exe.get_function_params(func_name)
        self._inputs[func_name] = in_order(func_name, names, args, kwargs)

    def set_one_input(self, /, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep one argument of a function for `run`: by its name, or by its name or index and the value."""
        names = self.exe.get_function_params(func_name)
        if len(args) == 2 and not kwargs:
            kwargs = {args[0] if isinstance(args[0], str) else names[args[0]]: args[1]}
        elif args or len(kwargs) != 1:
            raise ValueError("set_one_input takes one argument: its name or its index, and the value")
        (name,) = kwargs
        if name not in names:
            raise ValueError(f"{func_name} has no parameter {name!r}; it has {', '.join(names) or 'none'}")
        self._inputs.setdefault(func_name, [None] * len(names))[names.index(name)] = kwargs[name]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The index of a parameter, -1 if there is none of that name."""
        names = self.exe.get_function_params(func_name)
        return names.index(input_name) if input_name in names else -1

    def invoke_with_outputs(self, func_name: str, input_args: Any, output_args: Sequence[Any]) -> None:
        """Call a function and copy its results into arrays."""
        given = (
            input_args
            if isinstance(input_args, Mapping)
            else dict(zip(self.exe.get_function_params(func_name), input_args, strict=True))
        )
        made = self.invoke(func_name, **given)
        results = list(made) if hasattr(made, "tag") else [made]
        if len(results) != len(output_args):
            raise ValueError(
                f"{func_name} has {len(results)} results, and {len(output_args)} arrays were given"
            )
        for result, out in zip(results, output_args, strict=True):
            result.copyto(out)

    def set_outputs(self, func_name: str, *args: Any) -> NoReturn:
        raise TVMError(
            "set_outputs: results come from the machine's pool; copy them with result.copyto(array)"
        )

    # -- calls -----------------------------------------------------------------------------------
    def invoke(self, /, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function; its result is an array, or a tuple of them."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        result = self.call(func_name, self._inputs.get(func_name, []))
        self._outputs = list(result) if hasattr(result, "tag") else [result]
        return result

    def call(self, func_name: str, args: Sequence[Any]) -> Any:
        """Call a function with its arguments in order."""
        code = self.exe.program.named(func_name)
        if len(args) != len(code.params):
            names = ", ".join(n for n, _, _ in code.params)
            raise ArgumentValueError(
                f"{func_name} takes {len(code.params)} arguments ({names}), got {len(args)}"
            )
        given = [
            self.tensors.taken(value, kind, name)
            for value, (name, _, kind) in zip(args, code.params, strict=True)
        ]
        versions = self.exe.versions
        if versions is None or func_name != "main" or self.timed:
            return self._called(func_name, given)
        shapes = tuple([g[1] for g in given])
        version = versions.found(shapes)
        if version is not None and self._executing.acquire(blocking=False):
            try:
                return self._run_version(version, given)
            finally:
                self._executing.release()
        result = self._called(func_name, given)
        if version is None:
            versions.ran(shapes, result)
        return result

    def _run_version(self, version: Version, given: Sequence[Tensor]) -> Any:
        """The result of the version for these sizes."""
        executor = self._executors.get(version)
        if executor is None:
            executor = self._executors[version] = version.module.create(self.device)
        return version.shaped(executor.compute([self.tensors.given(t) for t in given]))

    def finish(self) -> None:
        """Return when no version for sizes that recur is being compiled."""
        if self.exe.versions is not None:
            self.exe.versions.wait()

    def _called(self, func_name: str, given: Sequence[Any]) -> Any:
        self.tensors.before(given)
        with deep_calls(DEPTH):
            while True:
                functions = self._linked()
                try:
                    return self.tensors.result(called(functions[self._numbers[func_name]](*given)))
                except Missing as kernel:
                    number = kernel.number
                except RecursionError as error:
                    raise TVMError(f"{func_name}: calls are nested more than {DEPTH} deep") from error
                self.exe.compile_missing(number)

    def invoke_stateful(self, /, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Call a function and keep its results for `get_outputs`."""
        self.invoke(func_name, *args, **kwargs)

    def run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call `main`."""
        return self.invoke("main", *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """The results of the last call."""
        return list(self._outputs)

    # -- figures ---------------------------------------------------------------------------------
    def memory_report(self) -> VMMemoryReport:
        """The memory use of the constants and the pool."""
        return VMMemoryReport(sum(c.nbytes for c in self.exe.constants), self.pool.report())

    def benchmark(
        self,
        device: Device | None = None,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """The time of a call."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        given = self._inputs.get(func_name, [])
        if not end_to_end:
            given = [
                v if isinstance(v, NDArray) or not isinstance(v, np.ndarray) else array(v, self.device)
                for v in given
            ]
        return time_evaluator(
            lambda: self.call(func_name, given),
            device or self.device,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )()


# ---------------------------------------------------------------------------- about instructions
def _blocks(instr: Any) -> list[Any]:
    if instr[0] == "if":
        return [instr[2], instr[3]]
    return [body for _, body in instr[1]] if instr[0] == "switch" else []


def _count(body: Sequence[Any]) -> int:
    return sum(1 + sum(_count(b) for b in _blocks(i)) for i in body)


def _has_open(body: Sequence[Any]) -> bool:
    return any(i[0] == "open" or any(_has_open(b) for b in _blocks(i)) for i in body)


def _listed(body: Sequence[Any], depth: int, out: list[str]) -> None:
    for i in body:
        inner = _blocks(i)
        shown = [x for x in i if not any(x is b for b in inner)] if inner else i
        if i[0] == "switch":
            shown = ["switch", [pairs for pairs, _ in i[1]]]
        out.append("  " * depth + " ".join(str(x) for x in shown))
        for b in inner:
            _listed(b, depth + 1, out)
