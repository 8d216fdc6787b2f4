"""Codes of 16 bits as two digits of 8, each of which a kernel multiplies."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from jq import kernels
from jq.ir import OPS, Program, at, evaluate, ir
from jq.ir.contract import Contract
from jq.passes.kernels._kernel import call_kernel


def digits(c: Contract) -> tuple[Contract, Contract] | None:
    """The contractions of the upper and of the lower digits of the one operand that has 16 bits:
    `code = 256 * upper + lower + 128`, both in [-128, 127]: the lower digits have the zero point
    -128. None where no operand, or both, are symmetric codes of 16 bits."""
    sides = [(i, *side) for i, side in enumerate(c.sides) if isinstance(side, tuple)]
    wide = [i for i, e, parts in sides if e.format == "int16" and "zero_point" not in parts]
    if len(wide) != 1 or len(c.sides) != 2:
        return None
    (index,) = wide
    encoding, parts = c.sides[index]
    with at(c.op):
        codes, byte = parts["codes"], np.int8
        upper = OPS.convert(OPS.shift_right_signed(codes, 8), byte)
        low = OPS.sub(OPS.bit_and(codes, 255), 128)
        zero = OPS.constant(np.full(encoding.grid, -128, np.int32))
        first = (replace(encoding, format="int8"), {**parts, "codes": upper})
        lower = {**parts, "codes": OPS.convert(low, byte), "zero_point": zero}
        second = (replace(encoding, format="int8", scheme="asymmetric"), lower)

    def taking(side: object) -> Contract:
        sides = [side if i == index else other for i, other in enumerate(c.sides)]
        return replace(c, sides=tuple(sides))

    return replace(taking(first), name=f"{c.name}/upper"), taking(second)


def is_small(weight: np.ndarray, zero: np.ndarray | None) -> bool:
    """True if sums of 16-bit codes have 32 bits, for a weight [..., columns] of any axes in front
    and zero points [columns]."""
    real = weight.astype(np.int64) - (0 if zero is None else zero)
    sums = np.abs(real).sum(tuple(range(real.ndim - 1)))
    return bool(sums.max(initial=0) << 15 < 1 << 31)


def in_digits(kernel: Any) -> Any:
    """The kernel of both digits, which begins with `Dequantize` of their whole sum, for one of a
    single digit; None where there is none."""
    reads = kernel.unsigned and kernels.get_isa(kernel.isa).dot.lhs_unsigned and not kernel.on_tiles
    if not reads or kernel.row_zero or kernel.column_zero:
        return None
    of_both = kernels.Kernel.registry[f"digit_{kernel.family}"]
    return of_both(**{f.name: getattr(kernel, f.name) for f in fields(kernel)})


def upper_sums(
    program: Program, kernel: kernels.Kernel, given: Sequence[ir.Value], packed: ir.Value, name: str
) -> list[ir.Value]:
    """The sums of the upper digits; weights that lie as `packed` does are not stored again."""
    codes, weights, *rest = given
    one, other = (evaluate(program, v) for v in (weights, packed))
    if one is not None and other is not None and np.array_equal(one, other):
        weights = packed
    return call_kernel(program, kernel, [codes, weights, *rest], name)
