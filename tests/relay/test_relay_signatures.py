"""The constructors of operators take what the classic ones take, by name, order and default: signatures.txt has them all.

`pytest tests/relay/test_relay_signatures.py --update-expect` writes the file anew. A line that is changed there is a
program of somebody's that no longer runs; a line that is added is a new operator.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright import relay

FILE = Path(__file__).with_name("signatures.txt")
MODULES: dict[str, ModuleType] = {
    "relay": relay,
    "relay.nn": relay.nn,
    "relay.image": relay.image,
    "relay.vision": relay.vision,
    "relay.dyn": relay.dyn,
    "relay.op": relay.op,
    "relay.op.nn": relay.op.nn,
    "relay.op.annotation": relay.op.annotation,
    "relay.qnn": relay.qnn,
    "relay.qnn.op": relay.qnn.op,
}


def plain(signature: inspect.Signature) -> str:
    """Names, kinds and defaults; annotations are hints for the reader."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def is_constructor(value: Any) -> bool:
    home = getattr(value, "__module__", "")
    ours = home.startswith(("tilewright.relay.op.", "tilewright.relay.qnn.")) and not home.endswith(
        ".registry"
    )
    return ours and inspect.isfunction(value)


def signatures() -> dict[str, str]:
    found = {}
    for where, module in MODULES.items():
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name)
            if not name.startswith("_") and is_constructor(value):
                found[f"{where}.{name}"] = plain(inspect.signature(value))
    return found


def test_signatures_are_the_classic_ones(request: Any) -> None:
    now = "".join(f"{name}{text}\n" for name, text in sorted(signatures().items()))
    if request.config.getoption("--update-expect"):
        FILE.write_text(now)
    assert now == FILE.read_text()


@pytest.mark.parametrize("name", ["relay.nn.conv2d", "relay.reshape", "relay.exp", "relay.qnn.op.add"])
def test_an_editor_sees_names_annotations_and_a_docstring(name: str) -> None:
    where, _, last = name.rpartition(".")
    build = getattr(MODULES[where], last)
    signature = inspect.signature(build)
    assert build.__name__ == last and build.__doc__ and build.__module__.startswith("tilewright.relay.")
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
    assert signature.return_annotation is not inspect.Signature.empty
