"""The rules for CPUs."""
