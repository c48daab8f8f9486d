"""Annotations by which schedules direct lowering."""

from __future__ import annotations

from typing import Final

BULK_COPY: Final = "tilewright.bulk_copy"  # of a block: TMA copies its tile into shared memory
# Of a block that declares a scan: warps, vectors of a thread, their lanes (0: a thread for each line), parts of a line.
SCAN_THREADS: Final = "scan_threads"
