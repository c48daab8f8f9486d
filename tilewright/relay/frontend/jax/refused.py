"""Primitives that are refused, with the reason; the report of missing primitives names it."""

from __future__ import annotations

_RANDOM = "random numbers differ from those of JAX; draw them outside and pass them as an argument"
_MATRIX = "decompositions of matrices are not supported"
_EFFECT = "a call of Python from the program is not supported"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        "random_bits random_seed random_wrap random_unwrap random_split random_fold_in random_gamma random_clone "
        "threefry2x32 rng_bit_generator rng_uniform".split(),
        _RANDOM,
    ),
    **dict.fromkeys(
        "cholesky eig eigh svd qr lu schur householder_product triangular_solve tridiagonal_solve hessenberg "
        "tridiagonal".split(),
        _MATRIX,
    ),
    **dict.fromkeys("pure_callback io_callback debug_callback debug_print".split(), _EFFECT),
    "fft": "complex numbers are not supported",
    "complex": "complex numbers are not supported",
}
