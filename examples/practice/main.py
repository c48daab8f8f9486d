"""The whole practice: five phases, each of which answers its question with figures measured on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # started as a file: the package is the folder that it lies in
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from practice import auto_tune, kit, manual_schedule, relay_import, schedule_analysis, te_basics

PHASES = (te_basics, manual_schedule, schedule_analysis, relay_import, auto_tune)

if __name__ == "__main__":
    kit.main(PHASES, __doc__)
