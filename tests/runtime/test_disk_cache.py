"""The cache on disk: entries whole or not at all, damage, age, several processes, folders that refuse."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from tilewright import config
from tilewright.runtime.cache import DiskCache, compiled_code, digest, shared_with


@pytest.fixture
def store(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1 << 20)


def test_what_is_put_comes_back(store: DiskCache) -> None:
    key = digest("a", 1, None, b"x")
    assert store.get(key) is None
    for data in (b"", b"one", bytes(100_000)):
        store.put(key, data)
        assert store.get(key) == data
    assert DiskCache(store.folder, 1 << 20).get(key) == bytes(100_000)
    assert (store.hits, store.misses) == (3, 1)
    assert repr(store) == f"<DiskCache {store.folder}: 3 hits, 1 misses>"
    store.clear()
    assert store.get(key) is None


def test_keys_tell_values_apart() -> None:
    lists = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("abc", ""),
        (b"ab", "c"),
        (1,),
        ("1",),
        (True,),
        (None,),
        (),
    ]
    assert len({digest(*values) for values in lists}) == len(lists)
    assert digest("a", 1) == digest("a", 1)


@pytest.mark.parametrize("damage", ["cut", "flip", "magic", "empty", "folder"])
def test_a_damaged_entry_is_no_entry(store: DiskCache, damage: str) -> None:
    key = digest(damage)
    store.put(key, b"some code" * 50)
    path = store.path(key)
    data = bytearray(path.read_bytes())
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        data[0 if damage == "magic" else -1] ^= 4
        path.write_bytes({"cut": data[:-7], "empty": b""}.get(damage, data))
    assert store.get(key) is None
    if damage != "folder":
        assert not path.exists()
        store.put(key, b"anew")
        assert store.get(key) == b"anew"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, 10_000)
    keys = [digest(i) for i in range(12)]
    now = time.time()
    for i, key in enumerate(keys[:9]):
        store.put(key, bytes(1000))
        os.utime(store.path(key), (now - 100 + i, now - 100 + i))
    assert store.get(keys[0]) is not None  # used now
    for key in keys[9:]:
        store.put(key, bytes(1000))
    left = [i for i, key in enumerate(keys) if store.get(key) is not None]
    assert left[0] == 0 and left[-3:] == [9, 10, 11]
    assert 1 not in left and 2 not in left
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) <= 10_000
    store.put(digest("too large"), bytes(20_000))
    assert store.get(digest("too large")) is None


def test_what_a_process_left_half_written_is_cleared_up(store: DiskCache) -> None:
    key = digest(0)
    store.put(key, b"x")
    old, young = (store.path(key).parent / name for name in (".old.part", ".young.part"))
    for path in (old, young):
        path.write_bytes(b"?")
    os.utime(old, (0, 0))
    store.sweep()
    assert not old.exists() and young.exists() and store.get(key) == b"x"


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = DiskCache(tmp_path / "file" / "cache", 1000)
    with pytest.warns(RuntimeWarning, match="nothing can be stored in .*cache: .*TILEWRIGHT_CACHE_DIR"):
        store.put(digest(1), b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(digest(1), b"x")
    assert store.get(digest(1)) is None


@pytest.mark.slow
def test_several_processes_at_once(tmp_path: Path) -> None:
    program = """
import random, sys
from tilewright.runtime.cache import DiskCache, digest
store, dice = DiskCache(sys.argv[1], 40_000), random.Random(sys.argv[2])
for _ in range(300):
    n = dice.randrange(40)
    found = store.get(digest(n))
    assert found in (None, bytes([n]) * 2000), n
    if found is None:
        store.put(digest(n), bytes([n]) * 2000)
print(store.hits)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(i)], stdout=subprocess.PIPE)
        for i in range(3)
    ]
    assert all(int(p.communicate()[0]) > 0 for p in running)
    assert all(p.returncode == 0 for p in running)


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "TILEWRIGHT_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", nobody)
    with config.using(cache=True):
        assert compiled_code() is None


def test_the_knobs_choose_the_store(tmp_path: Path) -> None:
    with config.using(cache=False):
        assert compiled_code() is None
    with config.using(cache=True, cache_dir=tmp_path, cache_size=3):
        store = compiled_code()
        assert store is not None and (store.folder, store.limit) == (tmp_path, 3 << 20)
        assert compiled_code() is store


# ---------------------------------------------------------------------------- folders of others
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX")


@posix
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o722])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    store = DiskCache(folder, 1 << 20)
    store.put("ab" * 32, b"good")
    folder.chmod(mode)
    os.chown(folder, -1, 12345) if os.getuid() == 0 else None
    again = DiskCache(folder, 1 << 20)
    with pytest.warns(RuntimeWarning, match=r"the cache folder .*cache is not used: .*TILEWRIGHT_CACHE_DIR"):
        assert again.get("ab" * 32) is None
    again.put("cd" * 32, b"more")  # nothing is said twice, nothing is written
    assert not again.path("cd" * 32).exists()
    folder.chmod(0o700)
    assert DiskCache(folder, 1 << 20).get("ab" * 32) == b"good"


@posix
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    DiskCache(folder, 1 << 20).put("ab" * 32, b"good")
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    if me == 0:  # what is root's is nobody's fault
        assert shared_with(folder) == ""
        os.chown(folder, 65534, 65534)
    assert "belongs to another user" in shared_with(folder)


@posix
def test_a_parent_that_others_may_write_to_counts(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "open may be written to by every user" in shared_with(tmp_path / "open" / "cache")
    (tmp_path / "open").chmod(0o1777)  # as /tmp: others cannot replace what is not theirs
    assert shared_with(tmp_path / "open" / "cache") == ""


@posix
def test_entries_of_others_are_not_read(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "cache", 1 << 20)
    store.put("ab" * 32, b"good")
    store.put("cd" * 32, b"good")
    store.path("ab" * 32).chmod(0o666)
    assert store.get("ab" * 32) is None
    entry = store.path("cd" * 32)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert store.get("cd" * 32) is None


@posix
def test_new_folders_are_private(tmp_path: Path) -> None:
    store = DiskCache(tmp_path / "a" / "b" / "cache", 1 << 20)
    store.put("ab" * 32, b"good")
    for folder in (tmp_path / "a", tmp_path / "a" / "b", store.folder, store.path("ab" * 32).parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert store.path("ab" * 32).stat().st_mode & 0o777 == 0o600
