"""Settings of the whole process."""

from __future__ import annotations


class AutotvmGlobalScope:
    """Settings of the process: `in_tuning` is true while a tuner measures, and `silent` suppresses the warnings of
    fallback configurations. `deep_tuning` changes nothing."""

    current: AutotvmGlobalScope

    def __init__(self) -> None:
        self.in_tuning = False
        self.silent = False
        self.deep_tuning = False
        AutotvmGlobalScope.current = self


GLOBAL_SCOPE = AutotvmGlobalScope()
