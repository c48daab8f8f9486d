"""Programs of torch.export from files: `.pt2` archives, screened before torch reads them.

`torch.export.load` unpickles what an archive holds, evaluates the text of sizes, looks functions up by their names and
loads compiled libraries. Here an archive holds a graph, tensors and plain data, or it is refused and nothing has run.
"""

from __future__ import annotations

import ast
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..ir.errors import FrontendError
from ..runtime.json_reader import read_json

# The members of an archive that are data. Others are compiled code, or objects of classes that somebody wrote.
_MEMBERS: Final = re.compile(
    r"(.*/)?(models/[^/]+\.json|data/weights/[^/]+|data/constants/(tensor_[^/]+|[^/]+\.json)|data/sample_inputs/[^/]+\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)|\.format_version"
    r"|\.storage_alignment|extra/.*|extra_files/.*"
    r"|serialized_(exported_program|state_dict|constants|example_inputs)\.(json|pt))"
)
_GRAPH: Final = re.compile(r"(.*/)?(models/[^/]+|serialized_exported_program)\.json")
_TARGET: Final = re.compile(r"(torch\.ops\.|_operator\.|math\.|torch\.sym_|torch\._sym_)[\w.]+|[^.]*")
# The functions in the text of a size: arithmetic, as torch and sympy write it.
_FUNCTIONS: Final = frozenset(
    "Abs Add And BooleanFalse BooleanTrue CeilDiv CeilToInt CleanDiv Eq Equality Float FloatPow "
    "FloatTrueDiv FloorDiv FloorToInt Ge GreaterThan Gt Identity IntTrueDiv Integer LShift Le LessThan Lt "
    "Max Min Mod ModularIndexing Mul Ne Not Or Pow PowByNatural PythonMod RShift Rational RoundDecimal "
    "RoundToInt StrictGreaterThan StrictLessThan Symbol ToFloat "
    "TruncToFloat TruncToInt Unequality Where Xor ceiling floor sqrt".split()
)
_NAMED: Final = frozenset(("Symbol", "Float", "Integer", "Rational"))  # they take text: a name, or digits
_NAME: Final = re.compile(r"[\w.+\-]{1,64}")
_ARITHMETIC: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword, ast.Constant, ast.Name,
    ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_LIMIT: Final = 1 << 28  # bytes of a graph
_ONLY_WEIGHTS: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_lock: Final = threading.Lock()


def load_exported(file: Path) -> Any:
    """The program of an archive; FrontendError if the archive could run code."""
    import torch

    _screen(file)
    with _only_weights():
        return torch.export.load(str(file))


def _screen(file: Path) -> None:
    """Refuse an archive with anything but a graph, tensors and plain data."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [e.filename for e in entries]
        if len(set(names)) != len(names):
            raise FrontendError(f"{file}: damaged: it has two members of one name")
        for name in {*names, *_as_torch_sees(file)}:
            if not name.endswith("/") and _MEMBERS.fullmatch(name) is None:
                raise FrontendError(
                    f"{file}: the member {name!r} is neither a graph nor tensors and could run code, so the file is "
                    "not read; if you trust it, load it by torch.export.load and import that by "
                    "relay.frontend.from_exported_program"
                )
        for entry in entries:
            if _GRAPH.fullmatch(entry.filename):
                if entry.file_size > _LIMIT:
                    raise FrontendError(f"{file}: {entry.filename} has {entry.file_size:,} bytes")
                where = f"{file}: {entry.filename}"
                _screen_graph(read_json(archive.read(entry), where, FrontendError), where)


def _as_torch_sees(file: Path) -> list[str]:
    """The members by torch's own reader, which may take a damaged archive for another one than Python's."""
    import torch

    try:
        return list(torch._C.PyTorchFileReader(str(file)).get_all_records())
    except RuntimeError:  # the form of older versions, which torch reads by `zipfile` too
        return []


def _screen_graph(data: Any, where: str) -> None:
    """Refuse text that torch would evaluate, and functions that are not operators."""
    stack = [data]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            stack += value.values()
            expr, target = value.get("expr_str"), value.get("target")
            if isinstance(expr, str) and not _plain(expr):
                raise FrontendError(f"{where}: the size {expr[:80]!r} is more than arithmetic")
            if isinstance(target, str) and "inputs" in value and _TARGET.fullmatch(target) is None:
                raise FrontendError(f"{where}: it calls {target[:80]!r}, which is not an operator")


def _plain(expr: str) -> bool:
    """Whether the text of a size is arithmetic over numbers and symbols: torch lets sympy evaluate it as Python."""
    if len(expr) > 10_000:
        return False
    try:
        nodes = list(ast.walk(ast.parse(expr, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    texts: set[int] = set()  # of constants that may be text
    for n in nodes:
        if isinstance(n, ast.Call):
            if not isinstance(n.func, ast.Name) or n.func.id not in _FUNCTIONS:
                return False
            texts |= {id(a) for a in n.args} if n.func.id in _NAMED else set()
    return all(isinstance(n, _ARITHMETIC) and _modest(n, texts) for n in nodes)


def _modest(n: ast.AST, texts: set[int]) -> bool:
    """Whether a part of a size names nothing of Python's own, and is not a power that takes the machine's memory."""
    if isinstance(n, ast.Name):
        return not n.id.startswith("_")
    if isinstance(n, ast.Constant) and isinstance(n.value, str):
        return id(n) in texts and _NAME.fullmatch(n.value) is not None and not n.value.startswith("_")
    if isinstance(n, ast.Constant):
        return isinstance(n.value, (bool, float)) or (isinstance(n.value, int) and abs(n.value) < 1 << 64)
    raised = None
    if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Pow, ast.LShift)):
        raised = n.right
    elif isinstance(n, ast.Call) and getattr(n.func, "id", "") in (
        "Pow",
        "PowByNatural",
        "LShift",
        "FloatPow",
    ):
        raised = n.args[1] if len(n.args) > 1 else None
    parts = [] if raised is None else list(ast.walk(raised))
    numbers = [m.value for m in parts if isinstance(m, ast.Constant) and isinstance(m.value, (int, float))]
    return all(abs(v) <= 64 for v in numbers) and not any(isinstance(m, ast.BinOp) for m in parts)


@contextmanager
def _only_weights() -> Iterator[None]:
    """Restrict torch to unpickling tensors and plain data; anything else is an error."""
    with _lock:
        before = os.environ.get(_ONLY_WEIGHTS)
        os.environ[_ONLY_WEIGHTS] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ONLY_WEIGHTS]
            else:
                os.environ[_ONLY_WEIGHTS] = before
