"""The pytest plugin of `tilewright.testing`: `target` and `dev`, and parameters that change together."""

from __future__ import annotations

from typing import Any

from .parameters import together
from .targets import enabled_targets


def pytest_configure(config: Any) -> None:
    """Make the mark for slow tests known."""
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


def pytest_generate_tests(metafunc: Any) -> None:
    """Parametrize tests by targets and by groups of parameters."""
    _over_targets(metafunc)
    _over_groups(metafunc)


def _over_targets(metafunc: Any) -> None:
    wanted = [name for name in ("target", "dev") if name in metafunc.fixturenames]
    defined = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _argnames(mark)}
    module = metafunc.module
    if not wanted or defined & {"target", "dev"} or any(hasattr(module, name) for name in wanted):
        return
    import pytest

    out: list[Any] = []
    for name, dev in enabled_targets():
        kind = name.split()[0]
        if kind in getattr(metafunc.function, "tvm_excluded_targets", ()):
            continue
        marks = []
        if kind in getattr(metafunc.function, "tvm_known_failing_targets", ()):
            marks.append(pytest.mark.xfail(reason=f"known to fail for {kind}", strict=True))
        values = {"target": name, "dev": dev}
        out.append(pytest.param(*(values[w] for w in wanted), marks=marks, id=name))
    metafunc.parametrize(",".join(wanted), out)


def _argnames(mark: Any) -> list[str]:
    given = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [n.strip() for n in given.split(",")] if isinstance(given, str) else list(given)


def _over_groups(metafunc: Any) -> None:
    names = {id(value): name for name, value in vars(metafunc.module).items()}
    done: set[int] = set()
    for value in list(vars(metafunc.module).values()):
        found = together.get(id(value))
        if found is None or id(found[0]) in done:
            continue
        done.add(id(found[0]))
        fixtures, sets, ids = found
        wanted = [
            (i, names[id(f)]) for i, f in enumerate(fixtures) if names.get(id(f)) in metafunc.fixturenames
        ]
        if wanted:
            rows = [tuple(values[i] for i, _ in wanted) for values in sets]
            metafunc.parametrize([name for _, name in wanted], rows, ids=ids)
