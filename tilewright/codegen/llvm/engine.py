"""LLVM through llvmlite: target machines, optimisation and object code."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...forks import new_in_child
from ...ir.errors import BuildError, TargetError
from ...runtime.jit import llvm as _llvm
from ...runtime.jit import lock as _lock

linking = new_in_child(threading.RLock())  # lazily generated code is generated once
_POOL = Path(__file__).with_name("threadpool.ll")
POOL_SYMBOLS = ("__tw_parallel_launch", "__tw_pool_limit", "__tw_memory", "__tw_quota")


def llvm_version() -> tuple[str, ...]:
    """The versions of llvmlite and of LLVM in it."""
    import llvmlite

    return str(llvmlite.__version__), ".".join(map(str, _llvm().llvm_version_info))


def process_triple() -> str:
    """The triple of the machine that this process runs on."""
    return str(_llvm().get_process_triple())


def pool_text(triple: str) -> str:
    """The thread pool for a triple, as LLVM's text."""
    arch, system = triple.split("-")[0], triple
    marks = {
        ";@x86 ": arch in ("x86_64", "i386", "i686", "amd64"),
        ";@arm64 ": arch in ("aarch64", "arm64"),
        ";@linux ": "linux" in system,
        ";@other ": "linux" not in system,
    }
    lines = []
    for line in _POOL.read_text().splitlines():
        for mark, wanted in marks.items():
            if line.startswith(mark):
                line = line.removeprefix(mark) if wanted else ""
        lines.append(line)
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=64)
def _check_known(triple: str, cpu: str, features: str) -> None:
    """Refuse a CPU or feature that LLVM does not know.

    LLVM itself complains on stderr only, and an unknown CPU may end the process later.
    """
    llvm = _llvm()
    if not cpu and not features:
        return
    with _lock, tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        said.seek(0)
        complaint = said.read().decode(errors="replace")
    if "not a recognized processor" in complaint:
        raise TargetError(f"LLVM knows no CPU {cpu!r} for {triple}; -mcpu=native is this machine's")
    unknown = re.search(r"'([^']*)' is not a recognized feature", complaint)
    if unknown:
        raise TargetError(f"LLVM knows no feature {unknown[1]!r} for {triple}: see -mattr")


class Machine:
    """A CPU to generate code for."""

    def __init__(self, triple: str, cpu: str, features: str, opt_level: int = 3, abi: str = "") -> None:
        llvm = _llvm()
        self.triple, self.cpu, self.features, self.opt_level, self.abi = triple, cpu, features, opt_level, abi
        try:
            target = llvm.Target.from_triple(triple)
        except RuntimeError as err:
            raise TargetError(f"LLVM has no code generator for the triple {triple!r}: {err}") from None
        _check_known(triple, cpu, features)
        self.machine = target.create_target_machine(
            cpu=cpu, features=features, opt=opt_level, reloc="pic", codemodel="default", abiname=abi
        )

    def parse(self, text: str, what: str = "the generated code (a bug in tilewright)") -> Any:
        """Parse and verify a module."""
        llvm = _llvm()
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as err:
            raise BuildError(f"LLVM refused {what}: {err}") from None
        module.triple = self.triple
        module.data_layout = str(self.machine.target_data)
        return module

    def verify(self, module: Any) -> None:
        """Verify the module after LLVM's own passes."""
        try:
            module.verify()
        except RuntimeError as err:
            raise BuildError(f"LLVM's passes left an unsound module (a bug in LLVM): {err}") from None

    def optimize(self, module: Any) -> None:
        """Run LLVM's own passes; loops and vectors are mostly as the schedule made them."""
        llvm = _llvm()
        options = llvm.create_pipeline_tuning_options(speed_level=self.opt_level)
        options.loop_vectorization = True
        options.slp_vectorization = True
        options.loop_unrolling = True
        builder = llvm.create_pass_builder(self.machine, options)
        passes = builder.getModulePassManager()
        try:
            passes.run(module, builder)
        finally:
            # llvmlite's own close() frees nothing here: the class inherits an empty _dispose before the real one.
            llvm.NewPassManager._dispose(passes)
            passes.detach()

    # LLVM's code generators modify the module, and `get_source` may still be called.
    def object_code(self, module: Any) -> bytes:
        return bytes(self.machine.emit_object(module.clone()))

    def assembly(self, module: Any) -> str:
        self.machine.set_asm_verbosity(False)
        return str(self.machine.emit_assembly(module.clone()))
