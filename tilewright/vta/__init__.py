"""The example accelerator. It is not there yet: its names can be imported, and say so when they are used."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "the example accelerator is not there yet",
    ["environment", "testing", "testing.simulator", "top"],
)
