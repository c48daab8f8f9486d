"""Schedules without a person: sketches derived from the program, sizes picked by a model of the machine."""

from .auto import auto_schedule

__all__ = ["auto_schedule"]
