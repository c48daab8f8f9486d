"""From a Python call to a C call: a launcher is generated for each function from its metadata.

    mult(A, B, C)
      ├ how many arguments, which scalars                       every call
      ├ addresses and layouts of the arrays                     every call: two slots of an NDArray
      ├ types, shapes, sizes, strides, device, writable         once for each combination of layouts
      ├ alignment                                               every call
      └ int32_t mult(float* A, float* B, float* C, int32_t n)   a prepared ctypes function

The checks are straight-line Python in `NativeFunction.source`; no native code runs before all have passed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from .arguments import ArgumentErrors, decoder, scalar_range
from .dtypes import ELEMENTS
from .errors import TVMError
from .limits import LARGEST_SIZE
from .metadata import BufferParam, Dim, FunctionInfo, ScalarParam, dim_text, dims_of, names_in
from .ndarray import NDArray
from .registry import PackedFunc

_MOST = 1024  # most arguments of a ctypes call
_REMEMBERED = 256  # cached combinations of layouts; beyond this the cache is cleared


class BoundCall:
    """A function with its arguments checked and converted: calling it is only the C call."""

    __slots__ = ("_decode", "_fail", "_keep", "_result", "run")

    def __init__(
        self,
        function: Callable[..., int],
        values: tuple[Any, ...],
        keep: object,
        result: Any,
        decode: Callable[[Any], Any],
        fail: Callable[[int], None],
    ) -> None:
        self.run = partial(function, *values)  # returns the code: 0 is success
        self._keep = keep
        self._result = result
        self._decode = decode
        self._fail = fail

    def __call__(self) -> Any:
        code = self.run()
        if code:
            self._fail(code)
        return None if self._result is None else self._decode(self._result.value)

    def fail(self, code: int) -> None:
        """Raise the error of a non-zero return code of `run`."""
        self._fail(code)


class NativeFunction(PackedFunc):
    """A compiled function. It keeps its library alive.

    For a device other than the CPU, it is given as one function for each device number.
    """

    __slots__ = ("_arguments", "_fail", "_function", "_library", "info", "source")

    def __init__(
        self,
        info: FunctionInfo,
        address: int | Mapping[int, Callable[..., int]],
        library: object,
        reason: Callable[[int], BaseException],
    ) -> None:
        self.info = info
        self._library = library
        self._function: Any = _prototype(info)(address) if isinstance(address, int) else address
        self._fail = _raiser(reason, library)
        self.source = launcher_source(info)
        scope: dict[str, Any] = {}
        exec(compile(self.source, f"<launcher of {info.name}>", "exec"), scope)
        errors = ArgumentErrors(info)
        launch, self._arguments = scope["make"](
            function=self._function,
            fail=self._fail,
            errors=errors,
            take=errors.take,
            take_scalar=errors.take_scalar,
            result_type=ELEMENTS[info.ret].ctype if info.ret in ELEMENTS else ctypes.c_void_p,
            decode=decoder(info.ret),
            NDArray=NDArray,
            byref=ctypes.byref,
            remembered=_REMEMBERED,
        )
        super().__init__(launch, info.name)

    def bind(self, *args: Any) -> BoundCall:
        """Check and convert the arguments now; the result can be called repeatedly without arguments."""
        values, keep, result = self._arguments(*args)
        if self.info.device != "cpu":
            return BoundCall(result, values, (keep, args, self), None, decoder(None), self._fail)
        types = self._function.argtypes
        return BoundCall(
            self._function,
            tuple(
                kind(value) if isinstance(value, (int, float)) else value
                for kind, value in zip(types, values)
            ),
            (keep, args, self),
            result,
            decoder(self.info.ret),
            self._fail,
        )

    def __repr__(self) -> str:
        return f"<compiled function {self.info.signature}>"


def _raiser(reason: Callable[[int], BaseException], library: object) -> Callable[[int], NoReturn]:
    """The error handler of a launcher. It refers to the library and not to the launcher: no reference cycle."""

    def fail(code: int, _keep: object = library) -> NoReturn:
        raise reason(code)

    return fail


def _prototype(info: FunctionInfo) -> Any:
    """The C type of a function."""
    types: list[Any] = []
    for param in info.params:
        pointer = isinstance(param, BufferParam) or param.dtype == "handle"
        types.append(ctypes.c_void_p if pointer else ELEMENTS[param.dtype].ctype)
    types += [ELEMENTS[symbol.dtype].ctype for symbol in info.symbols]
    if info.ret is not None:
        types.append(ctypes.c_void_p)
    if len(types) > _MOST:
        raise TVMError(
            f"{info.name} takes {len(types):,} arguments, sizes of arrays included, and a call from Python takes "
            f"{_MOST:,} at most; put several arrays into one, or call the exported library from C"
        )
    return ctypes.CFUNCTYPE(ctypes.c_int32, *types)


# -- the generated source ------------------------------------------------------------------
def launcher_source(info: FunctionInfo) -> str:
    """The text that makes a launcher: `solve` (the checks), `launch`, `arguments` (all but the call)."""
    values = [f"p{i}" if isinstance(param, BufferParam) else f"a{i}" for i, param in enumerate(info.params)]
    values += [f"n{i}" for i in range(len(info.symbols))]
    if info.device != "cpu":  # dispatch on the device of the arrays
        first = next(i for i, param in enumerate(info.params) if isinstance(param, BufferParam))
        function = f"function[s{first}.device_id]"
    else:
        function = "function"
    launch = ["def launch(*args):", *_prologue(info)]
    arguments = ["def arguments(*args):", *_prologue(info)]
    keep = ", ".join(f"k{i}" for i, param in enumerate(info.params) if isinstance(param, BufferParam))
    if info.ret is None:
        launch += [f"    code = {function}({', '.join(values)})", "    if code:", "        fail(code)"]
        arguments += [f"    return ({_tuple(values)}), ({keep or 'None'}), None"]
        if function != "function":
            arguments[-1] = arguments[-1].removesuffix("None") + function
    else:
        launch += [
            "    result = result_type()",
            f"    code = function({', '.join([*values, 'byref(result)'])})",
            "    if code:",
            "        fail(code)",
            "    return decode(result.value)",
        ]
        arguments += [
            "    result = result_type()",
            f"    return ({_tuple([*values, 'byref(result)'])}), ({keep or 'None'}), result",
        ]
    given = "function, fail, errors, take, take_scalar, result_type, decode, NDArray, byref, remembered"
    head = f"def make(*, {given}):"
    body = ["known = {}", "", *_solve(info), "", *launch, "", *arguments, "", "return launch, arguments"]
    return "\n".join([head, *(f"    {line}" if line else "" for line in body), ""])


def _tuple(items: list[str]) -> str:
    return ", ".join(items) + ("," if len(items) == 1 else "")


def _prologue(info: FunctionInfo) -> list[str]:
    """Everything before the C call."""
    count = len(info.params)
    lines = [f"    if len(args) != {count}:", "        errors.arity(args)"]
    if count:
        lines.append(f"    {_tuple([f'a{i}' for i in range(count)])} = args")
    for i, param in enumerate(info.params):
        if isinstance(param, ScalarParam):
            lines += _scalar(i, param)
    buffers = [i for i, param in enumerate(info.params) if isinstance(param, BufferParam)]
    if not buffers:
        return lines
    for i in buffers:
        lines += [
            f"    if a{i}.__class__ is NDArray:",
            f"        s{i} = a{i}._tw_layout; p{i} = a{i}._tw_ptr; k{i} = None",
            "    else:",
            f"        s{i}, p{i}, k{i} = take({i}, a{i})",
        ]
    needed = _tuple([f"s{i}" for i in buffers] + [f"a{i}" for i in _scalars_in_shapes(info)])
    lines += [
        f"    key = ({needed})",
        "    sizes = known.get(key)",
        "    if sizes is None:",
        f"        sizes = solve({needed})",
        "        if len(known) >= remembered:",
        "            known.clear()",
        "        known[key] = sizes",
    ]
    if info.symbols:
        lines.append(f"    {_tuple([f'n{j}' for j in range(len(info.symbols))])} = sizes")
    return lines + _alignment(info) + _alias_tests(info)


def _scalar(i: int, param: ScalarParam) -> list[str]:
    """The fast path for plain numbers of the right type and range; everything else takes the slow path."""
    limits = scalar_range(param.dtype)
    if limits is not None:
        test = f"a{i}.__class__ is not int or not {limits[0]} <= a{i} <= {limits[1]}"
    elif param.dtype in ("float32", "float64"):
        test = f"a{i}.__class__ is not float"
    else:
        return [f"    a{i} = take_scalar({i}, a{i})"]
    return [f"    if {test}:", f"        a{i} = take_scalar({i}, a{i})"]


def _alignment(info: FunctionInfo) -> list[str]:
    """One test for all arrays that must be aligned alike."""
    groups: dict[int, list[int]] = {}
    for i, param in enumerate(info.params):
        if isinstance(param, BufferParam):
            align = max(param.align, ELEMENTS[param.dtype].itemsize if param.dtype in ELEMENTS else 8)
            if align > 1:
                groups.setdefault(align, []).append(i)
    lines = []
    for align, members in groups.items():
        merged = " | ".join(f"p{i}" for i in members)
        lines += [
            f"    if ({merged}) & {align - 1}:" if len(members) > 1 else f"    if {merged} & {align - 1}:"
        ]
        lines += [f"        errors.misaligned({i}, s{i}, p{i}, {align})" for i in members]
    return lines


def _alias_tests(info: FunctionInfo) -> list[str]:
    """Tests for aliasing that the function does not do itself: whether two arrays may overlap. Most do not."""
    lines = []
    if info.all_apart is not None:
        arrays = [i for i, param in enumerate(info.params) if isinstance(param, BufferParam)]
        lines.append(f"    errors.all_apart(({', '.join(f'({i}, s{i}, p{i})' for i in arrays)},))")
    for i, j, same in info.apart:
        lines += [
            f"    if p{i} + s{i}.low < p{j} + s{j}.high and p{j} + s{j}.low < p{i} + s{i}.high:",
            f"        errors.overlap({i}, s{i}, p{i}, {j}, s{j}, p{j}, {same})",
        ]
    return lines


def _scalars_in_shapes(info: FunctionInfo) -> list[int]:
    """Integer parameters that occur in shapes: `f(A, n)` with A of shape [n]."""
    names: set[str] = set()
    for param in info.params:
        if isinstance(param, BufferParam):
            for _, _, dim in dims_of(param):
                names |= names_in(dim)
    names -= {symbol.name for symbol in info.symbols}
    return [
        i for i, param in enumerate(info.params) if isinstance(param, ScalarParam) and param.name in names
    ]


def _solve(info: FunctionInfo) -> list[str]:
    """The checks of layouts, and the values of the sizes."""
    buffers = [(i, param) for i, param in enumerate(info.params) if isinstance(param, BufferParam)]
    scalars = _scalars_in_shapes(info)
    head = ", ".join([f"s{i}" for i, _ in buffers] + [f"a{i}" for i in scalars])
    names = {info.params[i].name: f"a{i}" for i in scalars}
    names |= {symbol.name: f"n{j}" for j, symbol in enumerate(info.symbols)}
    lines = [f"def solve({head}):"]
    for i, param in buffers:
        lines += [
            f"    errors.kind({i}, s{i})",
            f"    h{i} = s{i}.shape",
        ]
        if param.strides is not None:
            lines.append(f"    t{i} = s{i}.all_strides()")
    sources = info.sources()
    for j, symbol in enumerate(info.symbols):
        i, kind, axis = sources[symbol.name]
        lines.append(f"    n{j} = {'h' if kind == 'shape' else 't'}{i}[{axis}]")
        limits = scalar_range(symbol.dtype)
        assert limits is not None
        most = min(limits[1], LARGEST_SIZE) if symbol.dtype == "int32" else limits[1]
        lines += [f"    if n{j} > {most}:", f"        errors.too_large({j}, n{j})"]
    if info.device != "cpu" and len(buffers) > 1:
        lines.append(f"    errors.one_device({', '.join(f's{i}' for i, _ in buffers)})")
    lines.append(f"    names = {{{', '.join(f'{name!r}: {variable}' for name, variable in names.items())}}}")
    for i, param in buffers:
        for kind, axis, dim in dims_of(param):
            if isinstance(dim, str) and sources.get(dim) == (i, kind, axis):
                continue
            lines += _dimension(i, kind, axis, dim, names)
        if param.strides is None:
            lines += [f"    if s{i}.strides is not None:", f"        errors.not_dense({i}, s{i})"]
    results = [f"n{j}" for j in range(len(info.symbols))]
    lines.append(f"    return ({_tuple(results)})" if results else "    return ()")
    return lines


def _dimension(i: int, kind: str, axis: int, dim: Dim, names: dict[str, str]) -> list[str]:
    actual = f"{'h' if kind == 'shape' else 't'}{i}[{axis}]"
    # only a division may be undefined; the helper then raises a clear error
    divides = isinstance(dim, tuple) and any(op in str(dim) for op in ("'//'", "'%'"))
    expected = f"errors.evaluate({i}, {axis}, names)" if divides else dim_text(dim, names.__getitem__, True)
    if divides and kind == "strides":
        expected = f"errors.evaluate({i}, {axis}, names, True)"
    if kind == "shape":
        return [f"    if {actual} != {expected}:", f"        errors.dimension({i}, s{i}, {axis}, names)"]
    return [
        f"    if {actual} != {expected} and h{i}[{axis}] != 1 and s{i}.size:",
        f"        errors.stride({i}, s{i}, {axis}, names)",
    ]
