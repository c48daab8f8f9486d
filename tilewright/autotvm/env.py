"""What holds for the whole process."""

from __future__ import annotations


class AutotvmGlobalScope:
    """Switches of the process: `in_tuning` while a tuner measures, `silent` to keep warnings of fallbacks back,
    `deep_tuning` as programs set it (the engine has one depth)."""

    current: AutotvmGlobalScope

    def __init__(self) -> None:
        self.in_tuning = False
        self.silent = False
        self.deep_tuning = False
        AutotvmGlobalScope.current = self


GLOBAL_SCOPE = AutotvmGlobalScope()
