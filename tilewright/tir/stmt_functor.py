"""The classic names for walking and rewriting loop programs."""

from ..ir.functor import (
    ir_transform,
    post_order_visit,
    pre_order_visit,
    renew_defs,
    substitute,
)

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "substitute"]
