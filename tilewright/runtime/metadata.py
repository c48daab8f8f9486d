"""The metadata of a compiled library: its functions, their parameters, and the constraints on sizes.

A dimension is an integer, the name of a size, or `["+", ["*", "n", 2], 1]` with + - * // % min max.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .dtypes import ELEMENTS
from .errors import LoadError
from .json_reader import read_json

FORMAT = 1
_OPERATIONS = ("+", "-", "*", "//", "%", "min", "max")
Dim = int | str | tuple[str, Any, Any]


@dataclass(frozen=True, slots=True)
class BufferParam:
    """A parameter that is an array: passed as the address of its first element."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] | None
    align: int
    access: str
    device: str
    scope: str


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A parameter that is a number or a plain address."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that the caller takes from the arrays' shapes and passes after the parameters."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """One function of a library: its signature and the constraints on its arguments."""

    name: str
    symbol: str
    params: tuple[BufferParam | ScalarParam, ...]
    symbols: tuple[Symbol, ...]
    ret: str | None
    # Pairs of arrays that must not overlap, the first of which is written; whether they may be the same array.
    apart: tuple[tuple[int, int, bool], ...] = ()
    # If these would be too many: no written array may overlap another one, except for these pairs of equal arrays.
    all_apart: frozenset[tuple[int, int]] | None = None

    @property
    def device(self) -> str:
        """The device of its arrays, on which it runs."""
        return next(
            (p.device for p in self.params if isinstance(p, BufferParam) and p.device != "cpu"), "cpu"
        )

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(param.name for param in self.params)})"

    def sources(self) -> dict[str, tuple[int, str, int]]:
        """The source of each symbol's value: parameter, `shape` or `strides`, axis."""
        wanted = {symbol.name for symbol in self.symbols}
        found: dict[str, tuple[int, str, int]] = {}
        for index, param in enumerate(self.params):
            if isinstance(param, BufferParam):
                for kind, axis, dim in dims_of(param):
                    if isinstance(dim, str) and dim in wanted:
                        found.setdefault(dim, (index, kind, axis))
        return found


@dataclass(frozen=True, slots=True)
class LibraryInfo:
    """The metadata of a library."""

    producer: str
    target: str
    triple: str
    functions: dict[str, FunctionInfo]
    entry: str | None


def dims_of(param: BufferParam) -> Iterator[tuple[str, int, Dim]]:
    """The dimensions of a parameter: those of the shape, then those of the strides."""
    for axis, dim in enumerate(param.shape):
        yield "shape", axis, dim
    for axis, dim in enumerate(param.strides or ()):
        yield "strides", axis, dim


def names_in(dim: Dim) -> set[str]:
    """The names that a dimension depends on."""
    if isinstance(dim, tuple):
        return names_in(dim[1]) | names_in(dim[2])
    return {dim} if isinstance(dim, str) else set()


def dim_text(dim: Dim, rename: Callable[[str], str] = str, inner: bool = False) -> str:
    """A dimension as Python text: `n * 2 + 1`."""
    if isinstance(dim, int):
        return f"({dim})" if inner and dim < 0 else str(dim)
    if isinstance(dim, str):
        return rename(dim)
    op, left, right = dim
    if op in ("min", "max"):
        return f"{op}({dim_text(left, rename)}, {dim_text(right, rename)})"
    text = f"{dim_text(left, rename, True)} {op} {dim_text(right, rename, True)}"
    return f"({text})" if inner else text


def overlap_text(names: Sequence[str], written: int, other: int, same: bool) -> str:
    """The error message for a call whose arguments overlap."""
    also = ", or the same array for both" if same else ""
    return (
        f"argument {written + 1} (`{names[written]}`) is written and overlaps argument {other + 1} "
        f"(`{names[other]}`) in memory{' in part' if same else ''}; pass a copy of one of them{also}"
    )


def parse_metadata(data: Any, where: str) -> LibraryInfo:
    """Parse and check the metadata of a library; `where` names the library in errors."""
    if isinstance(data, (str, bytes)):
        data = read_json(data, f"{where}: the library's metadata is damaged")
    if not isinstance(data, dict) or "format" not in data:
        raise LoadError(f"{where}: the library's metadata has no format number")
    if data["format"] != FORMAT:
        raise LoadError(
            f"{where}: the library has metadata format {data['format']!r} "
            f"(made by {data.get('producer', '?')}), this runtime reads format {FORMAT}; "
            "compile it again with this version"
        )
    try:
        functions = [_function(entry, where) for entry in data["functions"]]
        info = LibraryInfo(
            producer=str(data.get("producer", "")),
            target=str(data.get("target", "")),
            triple=str(data.get("triple", "")),
            functions={function.name: function for function in functions},
            entry=data.get("entry"),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise LoadError(f"{where}: the library's metadata is damaged: {error!r}") from error
    if info.entry is not None and info.entry not in info.functions:
        raise LoadError(f"{where}: the entry {info.entry!r} is not among the functions of the library")
    return info


def _function(data: dict[str, Any], where: str) -> FunctionInfo:
    name = data["name"]
    here = f"{where}: function {name!r}"
    apart = data.get("apart", ())
    together = apart["inplace"] if isinstance(apart, dict) else None
    info = FunctionInfo(
        name=name,
        symbol=data.get("symbol", name),
        params=tuple(_param(entry, here) for entry in data["params"]),
        symbols=tuple(Symbol(entry["name"], entry["dtype"]) for entry in data.get("symbols", ())),
        ret=data.get("ret"),
        apart=() if together is not None else tuple((int(w), int(o), bool(same)) for w, o, same in apart),
        all_apart=None if together is None else frozenset((int(w), int(o)) for w, o in together),
    )
    for pair in (*info.apart, *(info.all_apart or ())):
        if not all(0 <= i < len(info.params) and isinstance(info.params[i], BufferParam) for i in pair[:2]):
            raise LoadError(
                f"{here}: the arrays {pair[:2]} that must not overlap are not among its parameters"
            )
    if info.ret is not None:
        _known_dtype(info.ret, here)
    for symbol in info.symbols:
        if symbol.dtype not in ELEMENTS or not ELEMENTS[symbol.dtype].is_integer:
            raise LoadError(
                f"{here}: the size {symbol.name!r} has type {symbol.dtype}, which is not an integer"
            )
    _check_solvable(info, here)
    return info


def _check_solvable(info: FunctionInfo, here: str) -> None:
    """Check that every size is a dimension of some array, which determines its value."""
    sources = info.sources()
    bound = {symbol.name for symbol in info.symbols}
    for symbol in info.symbols:
        if symbol.name not in sources:
            raise LoadError(
                f"{here}: the size {symbol.name!r} cannot be found from the arguments, because no dimension "
                f"is exactly {symbol.name}; add an array with such a dimension"
            )
    bound |= {
        param.name
        for param in info.params
        if isinstance(param, ScalarParam) and param.dtype in ELEMENTS and ELEMENTS[param.dtype].is_integer
    }
    for param in info.params:
        if isinstance(param, BufferParam):
            for kind, _, dim in dims_of(param):
                unknown = names_in(dim) - bound
                if unknown:
                    raise LoadError(
                        f"{here}: the {kind} of {param.name!r} uses {', '.join(sorted(unknown))}, "
                        "which is neither a size nor an integer parameter"
                    )


def _param(data: dict[str, Any], here: str) -> BufferParam | ScalarParam:
    kind, name = data["kind"], data["name"]
    _known_dtype(data["dtype"], here)
    if kind == "scalar":
        return ScalarParam(name, data["dtype"])
    if kind != "buffer":
        raise LoadError(f"{here}: parameter {name!r} has the unknown kind {kind!r}")
    shape = tuple(parse_dim(dim, here) for dim in data["shape"])
    given = data.get("strides")
    strides = None if given is None else tuple(parse_dim(dim, here) for dim in given)
    if strides is not None and len(strides) != len(shape):
        raise LoadError(f"{here}: parameter {name!r} has {len(shape)} dimensions but {len(strides)} strides")
    align = int(data.get("align", 1))
    if align < 1 or align & (align - 1):
        raise LoadError(f"{here}: parameter {name!r} has alignment {align}, which is not a power of two")
    access = data.get("access", "rw")
    if access not in ("r", "w", "rw"):
        raise LoadError(f"{here}: parameter {name!r} has the unknown access {access!r}")
    device, scope = data.get("device", "cpu"), data.get("scope", "global")
    return BufferParam(name, data["dtype"], shape, strides, align, access, device, scope)


def _known_dtype(dtype: str, here: str) -> None:
    if dtype not in ELEMENTS and dtype != "handle":
        raise LoadError(f"{here}: data type {dtype!r} is unknown to this runtime")


def parse_dim(data: Any, here: str) -> Dim:
    """A dimension in metadata."""
    if isinstance(data, (int, str)) and not isinstance(data, bool):
        return data
    if isinstance(data, (list, tuple)) and len(data) == 3 and data[0] in _OPERATIONS:
        return (data[0], parse_dim(data[1], here), parse_dim(data[2], here))
    raise LoadError(f"{here}: {data!r} is not a dimension")
