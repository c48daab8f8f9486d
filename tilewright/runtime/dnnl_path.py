"""Where the library of oneDNN is. It is asked when graphs are imported, and so imports nothing else."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from glob import glob
from typing import Final

INSTALL: Final = "pip install onednn-cpu-gomp"


@lru_cache(maxsize=1)
def find() -> str | None:
    """The path of the library, or None: in the folders of wheels and of the system, since asking the system's linker
    would start other programs."""
    given = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    system = ["/usr/local/lib", "/usr/lib", *glob("/usr/lib/*-linux-gnu"), "/usr/lib64", "/opt/homebrew/lib"]
    for folder in (
        os.path.join(sys.prefix, "lib"),
        os.path.join(sys.prefix, "Library/bin"),
        *filter(None, given),
        *system,
    ):
        for name in ("libdnnl.so.3", "libdnnl.3.dylib", "dnnl.dll"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return None
