"""Ops whose result has, at each place, a function of the operands' elements there."""

_ELEMENTWISE = """
    abs add and ceil clamp compare convert cosine divide exponential exponential_minus_one floor
    log log_plus_one logistic maximum minimum multiply negate not or power round_nearest_even
    rsqrt select sign sine sqrt subtract tanh
"""
ELEMENTWISE = frozenset({f"stablehlo.{name}" for name in _ELEMENTWISE.split()}) | {
    "chlo.erf",
    "chlo.erfc",
}
# Also those that have no table: of integers, of several bits at once, or not in NumPy.
_OTHERS = """
    atan2 cbrt count_leading_zeros imag is_finite optimization_barrier popcnt real reduce_precision
    remainder round_nearest_afz shift_left shift_right_arithmetic shift_right_logical tan xor
"""
POINTWISE = ELEMENTWISE | {f"stablehlo.{name}" for name in _OTHERS.split()} | {"chlo.erf_inv"}
