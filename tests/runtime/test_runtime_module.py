"""Modules: finding functions, loading files good and bad, timing, C headers."""

from __future__ import annotations

import ast
import ctypes
import gc
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Build
from native_library import ADD, ADD_INFO, PRELUDE, buffer, function, metadata, scalar, write_library

from tilewright import runtime
from tilewright.runtime import Library, LoadError, Module, TVMError, load_module, nd
from tilewright.runtime.link import find_cc, find_cross_cc, link_shared, pack_objects

TWO = "int32_t f(int32_t* r) { *r = 1; return 0; }\nint32_t g(int32_t* r) { *r = 2; return 0; }\n"
TWO_INFO = [function("f", [], ret="int32"), function("g", [], ret="int32")]


def refuse(path: Any, text: str, kind: type[Exception] = LoadError) -> None:
    with pytest.raises(kind) as info:
        load_module(path)
    assert str(info.value) == text


class TestFunctions:
    def test_by_name(self, build: Build) -> None:
        mod = build(TWO, TWO_INFO)
        assert mod["f"]() == 1
        assert mod.get_function("g")() == 2
        assert mod.implements_function("f")
        assert "g" in mod
        assert "h" not in mod
        assert mod.function_names == ["f", "g"]

    def test_a_name_that_is_not_there(self, build: Build) -> None:
        with pytest.raises(AttributeError, match=r"module 'lib1.so' has no function 'h'; it has: f, g"):
            build(TWO, TWO_INFO)["h"]
        with pytest.raises(TypeError, match="named by a string, not by int"):
            build(TWO, TWO_INFO)[0]  # type: ignore[index]

    def test_entry(self, build: Build) -> None:
        assert build(TWO, TWO_INFO, entry="g")() == 2
        assert build(TWO, TWO_INFO[:1])() == 1
        renamed = [TWO_INFO[0], TWO_INFO[1] | {"name": "main"}]
        mod = build(TWO, renamed)
        assert mod() == 2
        assert mod.entry_func() == mod[mod.entry_name]() == 2

    def test_no_entry(self, build: Build) -> None:
        with pytest.raises(TypeError, match=r"has no entry function, only: f, g; call one of them by name"):
            build(TWO, TWO_INFO)()

    def test_imports(self, build: Build) -> None:
        outer, inner = build(TWO, TWO_INFO[:1]), build(TWO, TWO_INFO[1:])
        outer.import_module(inner)
        assert outer.imported_modules == [inner]
        assert outer.get_function("g", query_imports=True)() == 2
        assert outer.implements_function("g", query_imports=True)
        assert not outer.implements_function("g")
        with pytest.raises(AttributeError, match=r"hint: the imported module 'lib2.so' has it"):
            outer["g"]
        with pytest.raises(ValueError, match="would make a cycle"):
            inner.import_module(outer)
        with pytest.raises(TypeError, match="takes a Module, not str"):
            outer.import_module("x")  # type: ignore[arg-type]

    def test_a_symbol_that_is_missing(self, build: Build) -> None:
        mod = build("", [function("f", [])])
        with pytest.raises(LoadError, match="'f' is declared, but symbol 'f' is missing"):
            mod["f"]

    def test_account_of_itself(self, add: Module) -> None:
        assert repr(add) == "Module(library, add.so: add(A, B, C))"
        assert (add.type_key, add.format, add.is_runnable, add.is_dso_exportable) == (
            *("library", "so", True, False),
        )
        assert json.loads(add.get_source("json"))["format"] == 1
        with pytest.raises(TVMError, match="has no source in format 'ptx'"):
            add.get_source("ptx")

    def test_saved_again(self, add: Module, tmp_path: Path) -> None:
        add.export_library(tmp_path / "again.so")
        x = nd.array(np.ones((1, 1), "float32"))
        load_module(tmp_path / "again.so")(x, x, x)
        assert x[0, 0] == 2
        with pytest.raises(TVMError, match=r"can be saved as \.so, not as 'll'"):
            add.save(tmp_path / "again.ll")

    def test_a_library_that_is_only_in_memory(self, add: Module) -> None:
        """The way code generators take: a Library of their own."""
        inside = add._library

        class Jit(Library):
            name = "jit"

            def address(self, symbol: str) -> int:
                return inside.address(symbol)

            def metadata(self) -> Any:
                return metadata([ADD_INFO])

        mod = Module(Jit(), "my_module")
        x = nd.array(np.ones((1, 1), "float32"))
        mod(x, x, x)
        assert x[0, 0] == 2
        assert mod.name == "my_module"
        for action in (mod.save, mod.export_library):
            with pytest.raises(TVMError, match="a module of kind library cannot be"):
                action("x.so")


class TestMetadata:
    @pytest.mark.parametrize(
        ("described", "text"),
        [
            ("{", "the library's metadata is damaged: this is not JSON: Expecting property name"),
            ("[]", "the library's metadata has no format number"),
            (
                metadata([], format=2),
                "the library has metadata format 2 (made by tilewright 0.1.0), this runtime reads format 1; "
                "compile it again with this version",
            ),
            (metadata([{"name": "f"}]), "the library's metadata is damaged: KeyError('params')"),
            (metadata([], entry="f"), "the entry 'f' is not among the functions of the library"),
            (
                metadata([function("f", [buffer("A", "float32", [["*", "n", 2]])], ("n",))]),
                "function 'f': the size 'n' cannot be found from the arguments, because no dimension "
                "is exactly n; add an array with such a dimension",
            ),
            (
                metadata([function("f", [buffer("A", "float32", ["k"])])]),
                "function 'f': the shape of 'A' uses k, which is neither a size nor an integer parameter",
            ),
            (
                metadata([function("f", [buffer("A", "float32", [["^", "n", 2]])])]),
                "function 'f': ['^', 'n', 2] is not a dimension",
            ),
            (
                metadata([function("f", [buffer("A", "float32", [2], strides=[1, 2])])]),
                "function 'f': parameter 'A' has 1 dimensions but 2 strides",
            ),
            (
                metadata([function("f", [buffer("A", "float99", [2])])]),
                "function 'f': data type 'float99' is unknown to this runtime",
            ),
            (
                metadata([function("f", [buffer("A", "int8", [2], align=3)])]),
                "function 'f': parameter 'A' has alignment 3, which is not a power of two",
            ),
            (
                metadata([function("f", [buffer("A", "int8", [2], access="x")])]),
                "function 'f': parameter 'A' has the unknown access 'x'",
            ),
            (
                metadata([function("f", [scalar("A", "int8") | {"kind": "thing"}])]),
                "function 'f': parameter 'A' has the unknown kind 'thing'",
            ),
        ],
    )
    def test_refused(self, described: Any, text: str) -> None:
        class Told(Library):
            name = "lib.so"

            def address(self, symbol: str) -> int:
                return 0

            def metadata(self) -> Any:
                return described

        with pytest.raises(LoadError) as info:
            Module(Told())
        assert str(info.value).startswith(f"lib.so: {text}")


class TestFiles:
    @pytest.fixture
    def file(self, add_library: Path, tmp_path: Path) -> Path:
        return Path(shutil.copy(add_library, tmp_path / "mine.so"))

    def test_missing(self, tmp_path: Path) -> None:
        path = tmp_path / "none.so"
        refuse(path, f"{path}: there is no such file", FileNotFoundError)

    def test_empty_and_folder(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.so"
        path.touch()
        refuse(path, f"{path}: the file is empty")
        (tmp_path / "folder.so").mkdir()
        refuse(tmp_path / "folder.so", f"{tmp_path / 'folder.so'}: not a file")

    def test_text(self, tmp_path: Path) -> None:
        path = tmp_path / "text.so"
        path.write_text("INPUT ( libfoo.so.1 )\n")
        refuse(path, f"{path}: not a shared library: the file is text, beginning with 'INPUT ( libfoo.s'")
        path.write_bytes(b"\0asm\1\0\0\0" + bytes(20))
        refuse(path, f"{path}: not a shared library: the file is a WebAssembly module")
        path.write_bytes(bytes(range(100)))
        refuse(
            path,
            f"{path}: not a shared library: the file begins with 00 01 02 03, not with the ELF magic number",
        )

    def test_truncated_anywhere(self, file: Path) -> None:
        whole = file.read_bytes()
        for keep in (10, 40, 64, 200, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:keep])
            with pytest.raises(LoadError, match=r"truncated|not a shared library") as info:
                load_module(file)
            assert str(file) in str(info.value)
        file.write_bytes(whole)
        load_module(file)

    @pytest.mark.parametrize(
        ("machine", "name"), [(183, "aarch64"), (243, "riscv"), (3, "x86"), (9999, "machine number 9999")]
    )
    def test_another_architecture(self, file: Path, machine: int, name: str) -> None:
        if os.uname().machine != "x86_64":
            pytest.skip("the texts are those of x86_64")
        data = bytearray(file.read_bytes())
        struct.pack_into("<H", data, 18, machine)
        file.write_bytes(data)
        refuse(file, f"{file}: the library is for {name}, this machine is x86_64")

    def test_another_width_or_byte_order(self, file: Path) -> None:
        whole = bytearray(file.read_bytes())
        for place, value, text in ((4, 1, "32 bits, this process has 64"), (16, 2, "link it first")):
            data = whole.copy()
            data[place] = value
            file.write_bytes(data)
            with pytest.raises(LoadError, match=text):
                load_module(file)

    def test_a_foreign_library(self, tmp_path: Path) -> None:
        source, path = tmp_path / "foreign.c", tmp_path / "foreign.so"
        marker = tmp_path / "it_ran"
        source.write_text(
            "#include <stdio.h>\n__attribute__((constructor)) static void init(void) "
            f'{{ fclose(fopen("{marker}", "w")); }}\nint x;'
        )
        link_shared(path, str(source))
        refuse(
            path,
            f"{path}: a shared library, but not one made by tilewright: it has no symbol __tw_metadata",
        )
        assert not marker.exists()  # its code did not run
        source.write_text("extern char __tw_metadata[];\nchar* x(void) { return __tw_metadata; }")
        link_shared(path, str(source))
        with pytest.raises(LoadError, match=r"the system cannot load it|not a library made by tilewright"):
            load_module(path)

    def test_a_library_with_a_missing_dependency(self, tmp_path: Path) -> None:
        path = write_library(
            tmp_path / "dep.so", "int32_t absent(void); int32_t f(void) { return absent(); }", metadata([])
        )
        with pytest.raises(LoadError, match=r"dep\.so: the system cannot load it: .*absent"):
            load_module(path)

    @pytest.mark.parametrize("ending", ["s", "txt", ""])
    def test_other_kinds(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / (f"x.{ending}" if ending else "x")
        path.write_text("define void @f()")
        refuse(
            path,
            f"{path}: a file of kind {ending or 'unknown'!r} cannot be loaded; "
            "loadable are .so (a shared library), .o (an object file), .tar (object files), .ll and .bc "
            "(LLVM), .ptx, .cubin, .cu and .cl (kernels)",
        )

    def test_without_its_ending(self, file: Path) -> None:
        other = file.rename(file.with_name("model"))
        assert load_module(other).function_names == ["add"]

    def object_file(self, folder: Path) -> Path:
        source = folder / "add.c"
        text = json.dumps(json.dumps(metadata([ADD_INFO])))
        source.write_text(f"{PRELUDE}\nconst char __tw_metadata[] = {text};\n{ADD}")
        command = find_cc()
        assert command is not None
        subprocess.run([*command, "-c", "-fPIC", str(source), "-o", str(folder / "add.o")], check=True)
        return folder / "add.o"

    def test_objects_and_archives(self, tmp_path: Path) -> None:
        obj = self.object_file(tmp_path)
        archive, nested = tmp_path / "add.tar", tmp_path / "nested.tar"
        pack_objects(archive, [str(obj)])
        with tarfile.open(nested, "w") as tar:
            tar.add(obj, "lib/add.o")
        before = sorted(tmp_path.iterdir())
        for path in (obj, archive, nested):
            x = nd.array(np.ones((1, 1), "float32"))
            load_module(path)(x, x, x)
            assert x[0, 0] == 2
        assert sorted(tmp_path.iterdir()) == before

    def test_bad_archives(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.tar"
        path.write_bytes(b"nothing of the kind")
        with pytest.raises(LoadError, match=r"bad\.tar: the tar archive is damaged"):
            load_module(path)
        with tarfile.open(path, "w") as tar:
            tar.add(self.object_file(tmp_path), "../outside.o")
        with pytest.raises(LoadError, match=r"member '\.\./outside\.o' is not a plain file within"):
            load_module(path)
        with tarfile.open(path, "w") as tar:
            tar.add(__file__, "a.txt")
        with pytest.raises(LoadError, match="no object files in the archive"):
            load_module(path)
        text = tmp_path / "text.o"
        text.write_text("x")
        remedy = "give a file that `save` wrote, or export it again"
        refuse(text, f"{text}: text.o is not an object file, or it is damaged; {remedy}")
        text.write_text("")
        refuse(text, f"{text}: text.o is empty; {remedy}")

    @pytest.mark.slow
    def test_compiled_again_under_the_same_name(self, tmp_path: Path) -> None:
        """The dynamic linker alone would give the old code."""
        path = tmp_path / "f.so"
        code = "int32_t f(int32_t* r) {{ *r = {}; return 0; }}"
        loaded = []
        for value in range(3):
            write_library(path, code.format(value), metadata([TWO_INFO[0]]))
            loaded.append(load_module(path))
        assert [mod() for mod in loaded] == [0, 1, 2]
        del loaded
        gc.collect()
        write_library(path, code.format(7), metadata([TWO_INFO[0]]))
        assert load_module(path)() == 7

    def test_no_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tilewright.runtime.link.find_cc", lambda: None)
        with pytest.raises(TVMError, match="no C compiler was found to link with; install gcc or clang"):
            link_shared(tmp_path / "x.so", "x.o")

    def test_the_compilers_words_are_passed_on(self, tmp_path: Path) -> None:
        bad = tmp_path / "bad.c"
        bad.write_text("int f(void) { return undeclared; }")
        with pytest.raises(TVMError, match=r"(?s)failed \(exit code 1\):.*undeclared"):
            link_shared(tmp_path / "bad.so", str(bad))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.c"]

    def test_zig_where_there_is_nothing_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("ziglang")
        monkeypatch.setenv("PATH", "/nonexistent")
        for variable in ("CC", "TILEWRIGHT_CC"):
            monkeypatch.delenv(variable, raising=False)
        assert find_cc() == [sys.executable, "-m", "ziglang", "cc"]


class TestOtherMachines:
    def test_commands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        zig = [sys.executable, "-m", "ziglang", "cc", "-target"]
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
        assert find_cross_cc("aarch64-unknown-linux-gnu") == [*zig, "aarch64-linux-gnu"]
        assert find_cross_cc("armv7a-linux-gnueabihf") == [*zig, "arm-linux-gnueabihf"]
        assert find_cross_cc("arm64-apple-macosx13") == [*zig, "aarch64-macos"]
        tool = tmp_path / "riscv64-linux-gnu-gcc"
        tool.touch(0o755)
        assert find_cross_cc("riscv64-unknown-linux-gnu") == ["riscv64-linux-gnu-gcc"]
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(TVMError, match="no compiler was found to link for aarch64-unknown-linux-gnu"):
            find_cross_cc("aarch64-unknown-linux-gnu")

    @pytest.mark.slow  # zig builds the other machine's C library once
    def test_a_library_for_another_machine(self, tmp_path: Path) -> None:
        pytest.importorskip("ziglang")
        source, path = tmp_path / "x.c", tmp_path / "x.so"
        source.write_text(f"{PRELUDE}\nconst char __tw_metadata[] = {{0}};")
        link_shared(path, str(source), triple="aarch64-unknown-linux-gnu")
        if os.uname().machine == "x86_64":
            refuse(path, f"{path}: the library is for aarch64, this machine is x86_64")


class TestPool:
    CODE = """
    static int32_t own(void) {{ return {}; }}
    void* __tw_parallel_launch = (void*)own;
    int32_t f(int32_t* r) {{ *r = ((int32_t (*)(void))__tw_parallel_launch)(); return 0; }}
    """

    @pytest.mark.slow
    def test_all_libraries_share_the_first_pool(self, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        from tilewright.runtime import library

        class Fresh:
            lock = library._Pool.lock
            launch = 0
            owner = None
            take = classmethod(library._Pool.take.__func__)  # type: ignore[attr-defined]

        monkeypatch.setattr(library, "_Pool", Fresh)
        first = build(self.CODE.format(10), TWO_INFO[:1])
        second = build(self.CODE.format(20), TWO_INFO[:1])
        assert (first(), second()) == (10, 10)
        assert first() == 10
        del first
        gc.collect()
        assert second() == 10  # the owner of the pool stays
        assert Fresh.owner is not None


class TestTime:
    COUNT = "static int32_t calls; int32_t f(int32_t* r) { *r = ++calls; return 0; }"

    def test_runs_are_counted(self, build: Build) -> None:
        mod = build(self.COUNT, TWO_INFO[:1])
        result = mod.time_evaluator("f", runtime.cpu(), number=3, repeat=4)()
        assert mod() == 1 + 3 * 4 + 1
        assert len(result.results) == 4
        assert 0 < result.min <= result.median <= result.max
        assert result.min <= result.mean <= result.max
        assert result.std >= 0

    def test_a_least_duration(self, build: Build) -> None:
        mod = build(self.COUNT, TWO_INFO[:1])
        result = mod.time_evaluator("f", runtime.cpu(), number=1, repeat=1, min_repeat_ms=5)()
        assert (mod() - 2) * result.mean >= 0.005

    def test_what_happens_before_each_repeat(self, build: Build) -> None:
        mod = build(self.COUNT, TWO_INFO[:1])
        seen: list[int] = []
        runtime.register_func("test.before", lambda: seen.append(mod()))
        try:
            mod.time_evaluator(
                "f", number=2, repeat=3, f_preproc="test.before", cache_flush_bytes=1 << 16,
                cooldown_interval_ms=1,
            )()  # fmt: skip
        finally:
            runtime.remove_global_func("test.before")
        assert seen == [2, 5, 8]

    def test_python_functions_can_be_timed(self) -> None:
        calls: list[int] = []
        runtime.time_evaluator(calls.append, number=2, repeat=2)(1)
        assert len(calls) == 5

    def test_refused(self, add: Module) -> None:
        with pytest.raises(ValueError, match="number=0 and repeat=1"):
            add.time_evaluator("add", number=0)
        with pytest.raises(AttributeError, match="no function 'nothing'"):
            add.time_evaluator("nothing")
        with pytest.raises(TypeError, match="takes 3 arguments, got 0"):
            add.time_evaluator("add")()

    def test_text(self) -> None:
        result = runtime.BenchmarkResult([0.001, 0.003, 0.002])
        assert str(result) == (
            "Execution time, 3 repeats:\n"
            "mean (ms)  median (ms)  min (ms)  max (ms)  std (ms)\n"
            "   2.0000       2.0000    1.0000    3.0000    0.8165"
        )
        assert repr(result).startswith("BenchmarkResult(min=0.001, mean=0.002")


class TestHeader:
    INFO = [
        function(
            "mult",
            [
                buffer("A", "float32", ["m", "n"], "r"),
                buffer("B", "float32", ["m", ["+", ["*", "n", 2], 1]], "r", strides=["s", 1]),
                buffer("C", "float32", ["m", "n"], "w", align=64),
            ],
            ("m", "n", "s"),
        ),
        function(
            "odd",
            [buffer("if", "bfloat16", [3], "rw"), scalar("x.y", "bool"), scalar("h", "handle")],
            ret="int64",
        ),
        function("none", []),
    ]

    def test_prototypes(self, build: Build) -> None:
        text = build("", self.INFO).get_source("h")
        for line in (
            "const char* __tw_last_error(void);",
            "int32_t mult(const float* A, const float* B, float* C, int32_t m, int32_t n, int32_t s);",
            "int32_t odd(uint16_t* if_, uint8_t x_y, void* h, int64_t* result);",
            "int32_t none(void);",
            " *   B: float32[m][(n * 2) + 1], read, aligned to 1 bytes, strides (s, 1) in elements",
            " *   C: float32[m][n], written, aligned to 64 bytes",
            " *   n: extent of axis 1 of A",
            " *   s: stride of axis 0 of B",
        ):
            assert line in text.splitlines()

    def test_a_c_program_uses_it(self, add: Module, tmp_path: Path) -> None:
        (tmp_path / "add.h").write_text(add.get_source("h"))
        main = tmp_path / "main.c"
        main.write_text(
            '#include "add.h"\n#include "add.h"\n#include <stdio.h>\n'
            "int main(void) { float a[2] = {1, 2}, b[2] = {3, 4}, c[2];\n"
            "  if (add(a, b, c, 1, 2)) { puts(__tw_last_error()); return 1; }\n"
            '  printf("%g %g\\n", c[0], c[1]); return 0; }'
        )
        command = find_cc()
        assert command is not None
        library = add._library
        assert isinstance(library, runtime.SharedLibrary)
        flags = [
            "-Wall",
            "-Werror",
            "-std=c99",
            "-pedantic",
            "-o",
            str(tmp_path / "main"),
            str(main),
            library.path,
        ]
        subprocess.run([*command, *flags], check=True)
        done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
        assert done.stdout == "4 6\n"


class TestRoom:
    @pytest.mark.slow
    def test_the_runtime_imports_no_compiler(self) -> None:
        """Neither in the text of its files, nor when everything in it is used."""
        for file in Path(runtime.__file__).parent.glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom):
                    names = {alias.name for alias in node.names}
                    plain = node.module in ("cpus", "files", "forks", "homes") or (node.module, names) == (
                        None,
                        {"config"},
                    )
                    assert node.level < 2 or (node.level == 2 and plain), file
                    assert not (node.module or "").startswith("tilewright"), file
                if isinstance(node, ast.Import):
                    assert not any(name.name.startswith("tilewright") for name in node.names), file
        code = (
            "import sys, tilewright.runtime as r\n"
            "assert 'numpy' not in sys.modules\n"
            "own = lambda: {m for m in sys.modules if m.startswith('tilewright.')}\n"
            "before = own()\n"
            "[getattr(r, name) for name in r.__all__]\n"
            "rooms = tuple(f'tilewright.{name}' for name in ('runtime', 'config', 'cpus', 'files', 'forks'))\n"
            "more = {m for m in own() - before if not m.startswith(rooms)}\n"
            "assert not more, more\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_names(self) -> None:
        for name in runtime.__all__:
            assert name in dir(runtime)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            runtime.nothing  # type: ignore[attr-defined]  # noqa: B018

    def test_one_error_class(self) -> None:
        from tilewright.ir import errors

        assert errors.TVMError is runtime.TVMError
        assert issubclass(LoadError, (TVMError, ValueError))

    def test_enabled(self) -> None:
        assert runtime.enabled("llvm -mcpu=x")
        assert runtime.enabled("cpu")
        assert runtime.enabled("rpc")
        assert not runtime.enabled("metal")
        assert not runtime.enabled("toaster")

    def test_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
        assert runtime.num_threads() == 3
        monkeypatch.delenv("TILEWRIGHT_NUM_THREADS")
        assert runtime.num_threads() >= 1
        for bad in ("0", "-1", "many"):
            monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", bad)
            with pytest.raises(ValueError, match=f"TILEWRIGHT_NUM_THREADS='{bad}': expected a whole number"):
                runtime.num_threads()

    def test_plain_values(self) -> None:
        assert runtime.String("a") == "a"
        assert runtime.ShapeTuple([1, 2]) == (1, 2)
        assert ctypes.sizeof(ctypes.c_void_p) == runtime.DataType("handle").itemsize
        vector = runtime.DataType("float32x4")
        assert (vector.code, vector.bits, vector.lanes, vector.itemsize, vector.type_code) == (
            *("float", 32, 4, 16, 2),
        )
        assert runtime.DataType("bfloat16").type_code == 4
        with pytest.raises(ValueError, match="unknown data type 'flaot32'"):
            runtime.DataType("flaot32")
