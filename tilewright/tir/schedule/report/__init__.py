"""Seeing what a schedule does: before and after in the terminal, and a page that plays it.

This package is imported when it is first used: it needs NumPy, and schedules do not.
"""

from .diff import print_diff
from .page import report_data, write_html

__all__ = ["print_diff", "report_data", "write_html"]
