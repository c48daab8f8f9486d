"""Linking for Android. It is not there yet: using a name of it says so."""

from .._later import announce

__getattr__ = announce(
    __name__,
    'linking for Android is not there yet; save the module as ".o" and link it with the NDK yourself',
)
