"""Importers whose packages are not installed say which, and how to get them."""

from __future__ import annotations

import sys

import pytest

from tilewright import relay
from tilewright.ir.errors import FrontendError


@pytest.mark.parametrize("name", ["from_keras", "from_tensorflow"])
@pytest.mark.parametrize("package", ["tensorflow", "tf2onnx"])
def test_what_is_missing_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("tensorflow", "tf2onnx"):  # there is no need to load what is there
        monkeypatch.setitem(sys.modules, other, sys)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FrontendError) as caught:
        getattr(relay.frontend, name)(None)
    assert str(caught.value) == (
        f"relay.frontend.{name} needs the package {package!r}; pip install 'tilewright[tensorflow]'"
    )
