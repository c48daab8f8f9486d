"""The options of an `InferenceSession` and of one run, under onnxruntime's names."""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import Any, ClassVar

from ..runtime.errors import ArgumentTypeError, ArgumentValueError


class GraphOptimizationLevel(IntEnum):
    """How much the graph is optimized: `opt_level` 0, 1, 2 and 3 of `tilewright.compile`."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Kernels run one after the other, each on all threads, whatever is asked for."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class _Options:
    """Attributes with defaults: those that act are checked, the others warn by name where they are changed."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {}
    _ACTING: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        self.__dict__.update(self._DEFAULTS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._DEFAULTS:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}")
        if name in self._ACTING:
            self._check(name, value)
        elif value != self._DEFAULTS[name]:
            warnings.warn(f"{type(self).__name__}.{name} does nothing here", RuntimeWarning, stacklevel=2)
        self.__dict__[name] = value

    def _check(self, name: str, value: Any) -> None:
        """Refuse a value that an option does not take."""

    def __repr__(self) -> str:
        changed = {k: v for k, v in self.__dict__.items() if self._DEFAULTS.get(k, ()) != v}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


class SessionOptions(_Options):
    """The options of a session. These act:

    - `intra_op_num_threads`: the number of threads, 0 for all;
    - `graph_optimization_level`: how much the graph is optimized;
    - `enable_profiling` and `profile_file_prefix`: `session.end_profiling()` writes a trace of each kernel;
    - `add_free_dimension_override_by_name`: a number for a dynamic size, for which the code is then made.

    The others of onnxruntime would change nothing, and warn when they are changed.
    """

    intra_op_num_threads: int
    graph_optimization_level: GraphOptimizationLevel
    enable_profiling: bool
    profile_file_prefix: str
    _sizes: dict[str, int]
    _entries: dict[str, str]

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "intra_op_num_threads": 0,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "enable_profiling": False,
        "profile_file_prefix": "onnxruntime_profile_",
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "inter_op_num_threads": 0,
        "enable_mem_pattern": True,
        "enable_cpu_mem_arena": True,
        "enable_mem_reuse": True,
        "execution_order": 0,
        "log_severity_level": 2,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    _ACTING = frozenset(
        ("intra_op_num_threads", "graph_optimization_level", "enable_profiling", "profile_file_prefix")
    )

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_sizes"], self.__dict__["_entries"] = {}, {}

    @classmethod
    def of(cls, given: Any) -> SessionOptions:
        """Options of onnxruntime itself as ours."""
        if isinstance(given, cls):
            return given
        if type(given).__name__ != "SessionOptions":
            kind = type(given)
            raise ArgumentTypeError(
                f"sess_options is a SessionOptions, not {kind.__module__}.{kind.__qualname__}"
            )
        made, plain = cls(), type(given)()
        for name, default in cls._DEFAULTS.items():
            value = getattr(given, name, default)
            if value != getattr(plain, name, default):
                setattr(made, name, int(value) if isinstance(default, IntEnum) else value)
        return made

    @property
    def opt_level(self) -> int:
        """The `opt_level` of `tilewright.compile`."""
        return min(int(self.graph_optimization_level), 3)

    @property
    def free_dimensions(self) -> dict[str, int]:
        """The numbers for dynamic sizes, by name."""
        return dict(self._sizes)

    def _check(self, name: str, value: Any) -> None:
        if name == "intra_op_num_threads" and (not isinstance(value, int) or value < 0):
            raise ArgumentValueError(
                f"intra_op_num_threads={value!r}: it is a number of threads; 0 takes all"
            )
        if name == "graph_optimization_level":
            try:
                GraphOptimizationLevel(int(value))
            except (TypeError, ValueError):
                known = ", ".join(level.name for level in GraphOptimizationLevel)
                raise ArgumentValueError(f"graph_optimization_level={value!r}: known are {known}") from None

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Make the code for one value of a dynamic size."""
        if not isinstance(dim_value, int) or dim_value < 0:
            raise ArgumentValueError(
                f"the size {dim_name!r} is a number that is not negative, not {dim_value!r}"
            )
        self._sizes[dim_name] = dim_value

    def add_session_config_entry(self, key: str, value: str) -> None:
        warnings.warn(f"the session configuration {key!r} does nothing here", RuntimeWarning, stacklevel=2)
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise ArgumentValueError(f"there is no session configuration {key!r}")
        return str(self._entries[key])

    def register_custom_ops_library(self, path: str) -> None:
        raise ArgumentValueError(
            f"{path}: libraries of custom operators are made for onnxruntime alone; an operator of your own is a "
            "converter here (CONTRIBUTING.md: an operator of graphs)"
        )


class RunOptions(_Options):
    """The options of one run. None of them changes a result; they warn when they are changed."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "log_severity_level": 2,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
        "training_mode": False,
    }

    def add_run_config_entry(self, key: str, value: str) -> None:
        warnings.warn(f"the run configuration {key!r} does nothing here", RuntimeWarning, stacklevel=2)
