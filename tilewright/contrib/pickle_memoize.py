"""Results kept on disk. They are not there yet: using a name of it says so."""

from .._later import announce

__getattr__ = announce(__name__, "results are not kept on disk yet; compute the reference each time")
