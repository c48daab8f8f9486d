"""Machine code from the cache on disk: when it is taken, what is in its key, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, te
from tilewright.codegen.llvm.engine import Machine
from tilewright.runtime.cache import DiskCache, compiled_code


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskCache]:
    with config.using(cache=True, cache_dir=tmp_path / "cache"):
        made = compiled_code()
        assert made is not None
        yield made


def module(factor: float = 2.0, target: str = "llvm", parallel: bool = True) -> tvm.runtime.Module:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: te.exp(A[i]) * factor, name="B")
    s = te.create_schedule(B.op)
    if parallel:
        s[B].parallel(B.op.axis[0])
    return tvm.build(s, [A, B], target, name="scaled")


def works(mod: tvm.runtime.Module, factor: float = 2.0) -> None:
    x = np.random.rand(64).astype("float32")
    y = np.empty_like(x)
    mod["scaled"](x, y)
    np.testing.assert_allclose(y, np.exp(x) * np.float32(factor), rtol=1e-5)


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The modules that LLVM optimises."""
    seen: list[object] = []
    real = Machine.optimize
    monkeypatch.setattr(Machine, "optimize", lambda self, m: (seen.append(m), real(self, m))[1])
    return seen


def test_the_second_build_asks_llvm_for_nothing(store: DiskCache, optimized: list[object]) -> None:
    works(module())
    assert optimized
    before = len(optimized), store.hits
    again = module()
    works(again)
    assert (len(optimized), store.hits) == (before[0], before[1] + 1)
    # What is for reading is made when it is asked for, and is the same.
    fresh = module()
    assert again.get_source("ll") == fresh.get_source("ll")
    assert again.get_source("asm") == fresh.get_source("asm") and "scaled" in again.get_source("asm")


def test_what_changes_the_code_changes_the_key(store: DiskCache) -> None:
    works(module())
    hits = store.hits
    works(module(3.0), 3.0)
    works(module(2.0, "llvm -mcpu=x86-64"))
    with tvm.transform.PassContext(opt_level=0):
        works(module())
    works(module(2.0, "llvm -opt-level=2"))
    assert store.hits == hits


@pytest.mark.parametrize(("asked", "level"), [("", 3), (" -opt-level=0", 0), (" -opt-level=2", 2)])
def test_a_target_says_how_hard_llvm_tries(asked: str, level: int) -> None:
    mod = module(2.0, f"llvm{asked}")
    assert mod.machine.opt_level == level
    works(mod)
    with config.using(llvm_level=1):
        assert module(2.0, f"llvm{asked}").machine.opt_level == 1


def test_exports_come_from_the_cache_too(store: DiskCache, optimized: list[object], tmp_path: Path) -> None:
    module().save(tmp_path / "a.o")
    before = len(optimized)
    module().save(tmp_path / "b.o")
    assert len(optimized) == before
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()
    works(tvm.runtime.load_module(tmp_path / "b.o"))


def test_damage_costs_a_compilation(store: DiskCache, optimized: list[object]) -> None:
    works(module(parallel=False))
    for path in store.folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    before = len(optimized)
    works(module(parallel=False))
    assert len(optimized) > before


def test_it_can_be_switched_off(store: DiskCache) -> None:
    works(module(5.0), 5.0)
    hits, misses = store.hits, store.misses
    with tvm.transform.PassContext(config={"codegen.cache": False}):
        mod = module(5.0)
    works(mod, 5.0)
    with config.using(cache=False):
        mod = module(5.0)
    works(mod, 5.0)
    with config.using(debug=3, dump=store.folder / "code"):
        mod = module(5.0)
    works(mod, 5.0)
    assert (store.hits, store.misses) == (hits, misses)


def test_debug_keeps_the_code(tmp_path: Path) -> None:
    with config.using(debug=2, dump=tmp_path / "d"):
        works(module())
        works(module())
    names = {p.name for p in (tmp_path / "d").iterdir() if p.suffix != ".py" and p.is_file()}
    assert names == {f"scaled{n}.{kind}" for n in ("", "_2") for kind in ("ll", "opt.ll", "s")}
    assert "define i32 @scaled(" in (tmp_path / "d" / "scaled.opt.ll").read_text()
    with config.using(debug=4, dump=tmp_path / "e"):
        mod = module()
        works(mod)
    assert mod.machine.opt_level == 0
    (tmp_path / "file").write_text("")
    with (
        config.using(debug=2, dump=tmp_path / "file"),
        pytest.raises(ValueError, match=r"TILEWRIGHT_D\w+.*file"),
    ):
        module()
