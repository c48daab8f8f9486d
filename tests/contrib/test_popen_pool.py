"""Calls in worker processes."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tilewright.contrib.popen_pool import PopenWorker


def test_functions_inside_of_functions(monkeypatch: Any) -> None:
    pytest.importorskip("cloudpickle")
    more = 5

    def inner(x: int) -> int:
        return x + more

    worker = PopenWorker()
    worker.send(inner, [2])
    assert worker.recv() == 7
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(TypeError, match=r"inner and its arguments cannot be sent .* pip install cloudpickle"):
        worker.send(inner, [2])
        worker.recv()
    worker.kill()
