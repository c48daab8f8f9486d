"""Constants as sums of two float32, the second what the first leaves over.

Without a fused multiply-add the first must be short (15 bits), so that its product with an exponent is exact.
"""

from __future__ import annotations

__all__ = ["HALF_PI", "LN2", "LN2_SHORT", "LOG10E", "LOG10_2", "LOG10_2_SHORT", "LOG2E", "PI"]

LN2 = (0.6931471824645996, -1.9046542121259336e-09)
LN2_SHORT = (0.693145751953125, 1.428606765330187e-06)
LOG10_2 = (0.3010300099849701, -1.432098883924482e-08)
LOG10_2_SHORT = (0.301025390625, 4.605039066518657e-06)
LOG2E = (1.4426950216293335, 1.925963033500011e-08)
LOG10E = (0.4342944920063019, -1.0103049952192578e-08)
PI = (3.1415927410125732, -8.742277657347586e-08)
HALF_PI = (1.5707963705062866, -4.371138828673793e-08)
