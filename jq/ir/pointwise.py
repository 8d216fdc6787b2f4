"""Ops whose result has, at each place, a function of the operands' elements there."""

# An op's name, NumPy's function of its value (`-`: none, or one that is written out where it is
# used), and that of `jax.lax`.
_ROWS = """
    abs abs abs, add add add, and bitwise_and bitwise_and, atan2 arctan2 atan2, cbrt cbrt cbrt,
    ceil ceil ceil, clamp - clamp, cosine cos cos, count_leading_zeros - clz, divide divide div,
    exponential exp exp, exponential_minus_one expm1 expm1, floor floor floor, imag - imag,
    is_finite - is_finite, log log log, log_plus_one log1p log1p, logistic - logistic,
    maximum maximum max, minimum minimum min, multiply multiply mul, negate negative neg,
    not invert bitwise_not, or bitwise_or bitwise_or, popcnt - population_count, power power pow,
    real - real, remainder fmod rem, round_nearest_afz - round, rsqrt - rsqrt,
    shift_left left_shift shift_left,
    shift_right_arithmetic right_shift shift_right_arithmetic,
    shift_right_logical - shift_right_logical, sign sign sign, sine sin sin, sqrt sqrt sqrt,
    subtract subtract sub, tan tan tan, tanh tanh tanh, xor bitwise_xor bitwise_xor
"""
_EVERY = [row.split() for row in _ROWS.split(",")]
IN_NUMPY = {op: name for op, name, _ in _EVERY if name != "-"} | {"round_nearest_even": "rint"}
IN_JAX = {op: name for op, _, name in _EVERY}
# Those whose values NumPy computes, so that they can be tabulated.
_OTHERS = ("clamp", "compare", "convert", "logistic", "rsqrt", "select")
ELEMENTWISE = {f"stablehlo.{op}" for op in (*IN_NUMPY, *_OTHERS)} | {"chlo.erf", "chlo.erfc"}
_UNTABLED = ("optimization_barrier", "reduce_precision", *IN_JAX)
POINTWISE = ELEMENTWISE | {f"stablehlo.{op}" for op in _UNTABLED} | {"chlo.erf_inv"}
_STEPS = ("floor", "ceil", "round_nearest_even", "round_nearest_afz", "sign")
ROUNDED = {f"stablehlo.{op}" for op in _STEPS}  # their gradient is 0
