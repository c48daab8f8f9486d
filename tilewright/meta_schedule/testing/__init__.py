"""Programs to tune: `te_workload`."""

from ...absent import attributes
from ...homes import lazily

__getattr__ = lazily(__name__, {}, "te_workload", attributes(__name__))
