"""The largest sum that an int32 accumulator can reach, proved from the codes of a weight."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, affine_format, get_format, is_affine
from jq.formats.blocks import expand, reduce_blocks
from jq.ir import Op, Program
from jq.ir.ops.base import Axes, Contraction
from jq.planning.decisions import Declined, TensorPlan
from jq.planning.encodings import code_bits, summed_terms
from jq.planning.limits import OpShape
from jq.planning.operands import WeightUse
from jq.planning.tensors import TensorPlanner

LIMIT = 2**31 - 1  # of an int32


def worst_case(terms: int, sides: list[TensorPlan]) -> int:
    """Any codes on both sides."""
    return terms * math.prod(largest_code(p) for p in sides)


def largest_code(p: TensorPlan) -> int:
    """Bound on |code - zero point|."""
    if p.parameters is not None and is_affine(p.encoding.format):
        low, high = affine_format(p.encoding.format).limits(p.encoding)
        zero = p.parameters[1] or 0
        return max(high - zero, zero - low)
    bits = code_bits(p.encoding)
    return 2**bits - 1 if p.encoding.scheme == "asymmetric" else 2 ** (bits - 1)


def largest_sum(parts: Mapping[str, Any], enc: Encoding, contracted: Axes) -> int:
    """The largest sum of |code - zero point| over what is summed into one accumulator."""
    fmt = affine_format(enc.format)
    codes = np.asarray(fmt.codes(NUMPY, parts, enc), np.int64)
    zero = fmt.zero_point(NUMPY, parts, enc)
    if zero is not None:
        codes = codes - np.asarray(expand(NUMPY, np.asarray(zero, np.int64), enc))
    block = tuple(b if a in contracted else 1 for a, b in enumerate(enc.block))

    def total(x: np.ndarray, axes: list[int]) -> np.ndarray:
        return x.sum(axis=tuple(axes), keepdims=True)

    sums = reduce_blocks(NUMPY, total, np.abs(codes), enc.with_shape(enc.shape, block))
    return int(np.max(sums, initial=0))


def check_products(
    op: Op,
    rule: Contraction,
    plans: dict[int, TensorPlan],
    uses: dict[int, WeightUse],
    tensors: TensorPlanner,
) -> None:
    """Refuses a product that the device lacks, or whose sums its accumulator cannot hold."""
    sides = sorted(plans.values(), key=lambda p: p.kind == "weight")
    bits = [code_bits(p.encoding) for p in sides]
    pair = " x ".join(f"int{n}" for n in bits)
    device, kind = tensors.target.device, OpShape(op).kind
    own = device.of(kind).products
    products = device.products if own is None else own
    if len(bits) > 1 and pair not in products:
        others = ", ".join(products) or "none"
        where = "" if own is None else f" in {kind}"
        reason = f"target {tensors.target.name} has no product {pair}{where}"
        raise Declined(reason, f"it has: {others}")
    for p in sides:
        if p.stored:
            tensors.has_weight(p.encoding, kind)
    terms = rule.terms(op)
    for i, use in uses.items():
        terms = min(terms, summed_terms(rule, use, plans[i].encoding, rule.terms(op)))
    if 16 not in bits and worst_case(terms, sides) > LIMIT:
        bound = _largest_accumulator(tensors.program, plans, uses)
        if bound is None or bound > LIMIT:
            raise Declined(f"{terms} products can overflow an int32 accumulator")


def _largest_accumulator(
    program: Program, plans: dict[int, TensorPlan], uses: dict[int, WeightUse]
) -> int | None:
    """The largest sum of products with these very weights; None where they are not known."""
    for index, use in uses.items():
        enc, other = plans[index].encoding, next(p for i, p in plans.items() if i != index)
        if use.stored is None and is_affine(enc.format):
            parts = get_format(enc.format).encode(program.weights[use.name], enc)
            return largest_sum(parts, enc, use.contracted) * largest_code(other)
    return None
