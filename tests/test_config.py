"""The knobs: environment, `with` form, types, and the part of the cache key they make."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tilewright import config


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in config.knobs().values():
        monkeypatch.delenv(knob.variable, raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.dump.value is None and config.debug.value == 0
    assert config.time.value is False and config.check.value is False
    assert config.num_threads.value >= 1
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert config.cache_dir.value == Path("/x/tilewright")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert config.cache_dir.value == Path("~/.cache/tilewright").expanduser()


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", "~/dumps")
    monkeypatch.setenv("TILEWRIGHT_DEBUG", " 3 ")
    monkeypatch.setenv("TILEWRIGHT_TIME", "1")
    monkeypatch.setenv("TILEWRIGHT_CHECK", "off")
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "7")
    assert config.dump.value == Path("~/dumps").expanduser()
    assert (config.debug.value, config.time.value, config.check.value) == (3, True, False)
    assert config.num_threads.value == 7
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "8")
    assert config.num_threads.value == 8
    monkeypatch.setenv("TILEWRIGHT_TIME", "")
    assert config.time.value is False


def test_with_form_wins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    with config.debug.set(2) as held:
        assert held == config.debug.value == 2
        with config.using(debug=4, dump="d", num_threads=1):
            assert config.debug.value == 4 and config.dump.value == Path("d")
        assert config.debug.value == 2 and config.dump.value is None
        with pytest.raises(RuntimeError), config.debug.set(0):
            raise RuntimeError
        assert config.debug.value == 2
    assert config.debug.value == 1


def test_a_with_form_holds_for_its_thread() -> None:
    seen: list[int] = []
    with config.debug.set(4):
        thread = threading.Thread(target=lambda: seen.append(config.debug.value))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("debug", "5", "expected a whole number from 0 to 4"),
        ("debug", -1, "expected a whole number from 0 to 4"),
        ("debug", True, "expected a whole number"),
        ("debug", 1.5, "expected a whole number"),
        ("num_threads", "0", "expected a whole number from 1 on"),
        ("num_threads", "many", "expected a whole number from 1 on"),
        ("time", "maybe", "expected 0 or 1"),
        ("check", 2, "expected 0 or 1"),
    ],
)
def test_wrong_values(monkeypatch: pytest.MonkeyPatch, name: str, value: object, reason: str) -> None:
    knob = config.knobs()[name]
    with pytest.raises(ValueError, match=reason), knob.set(value):
        pass
    if isinstance(value, str):
        monkeypatch.setenv(knob.variable, value)
        with pytest.raises(ValueError, match=f"{knob.variable}='{value}': {reason}"):
            _ = knob.value


def test_unknown_knob() -> None:
    with (
        pytest.raises(ValueError, match="unknown knob 'speed'; known are dump, debug"),
        config.using(speed=1),
    ):
        pass


def test_code_key_holds_what_changes_code() -> None:
    key = config.code_key()
    assert [name for name, _ in key] == ["debug", "llvm_level"]
    with config.using(time=True, dump="d", check=True, cache_dir="c", num_threads=3):
        assert config.code_key() == key
    for other in ({"debug": 3}, {"llvm_level": 0}):
        with config.using(**other):
            assert config.code_key() != key
    hash(key)


def test_repr_says_what_it_is() -> None:
    assert repr(config.debug).startswith("<TILEWRIGHT_DEBUG=0: what to do for someone")

    assert set(config.__all__) >= set(config.knobs())


def test_a_watcher_hears_of_each_with_form_of_each_thread() -> None:
    heard: list[tuple[bool, int | None]] = []
    me = threading.get_ident()
    knob = config.Knob("n", "TILEWRIGHT_TEST_N", lambda: 1, int, "a number")
    with knob.set(5):
        knob.watch(lambda thread, value: heard.append((thread == me, value)))
        with knob.set(6):
            pass

        def other() -> None:
            with knob.set(7):
                pass

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert heard == [(True, 5), (True, 6), (True, 5), (False, 7), (False, None), (True, None)]
