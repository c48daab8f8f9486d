"""Winograd's minimal filtering: the matrices that make a short convolution of few products."""

from __future__ import annotations

from fractions import Fraction

# Evaluation points of the polynomials, the best conditioned first; the last point is infinity.
_POINTS = (0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2), 4, -4, Fraction(1, 4), Fraction(-1, 4))

Matrix = list[list[Fraction]]

# The greatest sum of the sizes of a tile and a kernel.
LARGEST = len(_POINTS) + 2


def _powers(points: list[Fraction], columns: int) -> Matrix:
    """A polynomial of `columns` coefficients at the points and at infinity."""
    return [[p**j for j in range(columns)] for p in points] + [
        [Fraction(int(j == columns - 1)) for j in range(columns)]
    ]


def _inverse(matrix: Matrix) -> Matrix:
    n = len(matrix)
    rows = [list(row) + [Fraction(int(i == j)) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(n):
            if r != i and rows[r][i]:
                factor = rows[r][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    return [row[n:] for row in rows]


def filter_matrices(tile: int, kernel: int) -> tuple[Matrix, Matrix, Matrix]:
    """A, B, G with  y = A^T [(G g) * (B^T d)]  for y[i] = sum of d[i + j] g[j].

    Products of polynomials are products of their values, so V_n^-1 ((V_m a) * (V_r g)) multiplies them;
    transposed, the same is a filter. Rows of B are scaled to integers where possible, G by the inverse.
    """
    size = tile + kernel - 1
    points = [Fraction(p) for p in _POINTS[: size - 1]]
    a, g = _powers(points, tile), _powers(points, kernel)
    b = _inverse(_powers(points, size))  # the columns of V_n^-1 are the rows of B^T
    for i in range(size - 1):
        scale = Fraction(1)
        for j in range(size - 1):
            scale *= points[i] - points[j] if i != j else 1
        g[i] = [x / scale for x in g[i]]
        for row in b:
            row[i] *= scale
    return a, b, g
