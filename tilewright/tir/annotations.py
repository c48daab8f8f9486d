"""Annotations by which schedules direct lowering."""

from __future__ import annotations

from typing import Final

BULK_COPY: Final = "tilewright.bulk_copy"  # of a block: TMA copies its tile into shared memory
