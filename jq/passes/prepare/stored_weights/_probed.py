"""Codes that a chain of ops on single elements turns into numbers, whatever the ops are.

    select(%bits, ..., multiply (bitcast_convert (or (and (bitcast_convert %float), ...))), ...)

`jnp.ldexp(codes, exponents)` is such a chain. Where it is `scale * codes + minimum`, with numbers
that do not depend on the codes, its value for codes of 0 is the minimum, and for codes of 1 the
scale is added: the chain is computed once more for each. Whether it is so is seen by its numbers,
as of every form."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from jq.ir import OPS, Op, copied, dtype_of, ir, kind_of, maker, reached, shape_of
from jq.ir.pointwise import POINTWISE
from jq.passes.prepare.stored_weights import FLOATS

Codes = Mapping[ir.Value, ir.Value]
CHAIN = POINTWISE | {"stablehlo.bitcast_convert"}
LIMIT = 200  # ops of a chain
SPREAD = ("stablehlo.broadcast_in_dim", "stablehlo.constant", "stablehlo.iota")


def probed(op: Op, codes_of: Codes) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """Codes, scale and minimum of an op's result, in its shape, computed at the insertion point;
    None where there are no codes, or several.

    Args:
        codes_of: the codes of those of `float_sources` that are nothing but codes."""
    chain = _chain(op)
    found = _codes(op, chain, codes_of)
    if found is None:
        return None
    source, codes = found
    low, one = (_computed(chain, source, n) for n in (0, 1))
    return codes, OPS.add(one, OPS.mul(low, -1)), low


def float_sources(op: Op) -> list[ir.Value]:
    """The floats in front of the chain that leads to an op."""
    return [v for v in _given(_chain(op)) if dtype_of(v).name in FLOATS and not _is_spread(v)]


def _given(chain: list[Op]) -> list[ir.Value]:
    """The values that a chain reads and does not make."""
    made = {o.results[0] for o in chain}
    return [v for v in dict.fromkeys(v for o in chain for v in o.operands) if v not in made]


def _chain(op: Op) -> list[Op]:
    """The ops on single elements that lead to an op, in program order."""

    def follow(each: ir.Operation) -> Iterator[ir.Operation]:
        makers = (maker(v) for v in each.operands)
        return (m.operation for m in makers if m is not None and _is_pointwise(m))

    chain = reached([op.operation] if _is_pointwise(op) else (), follow, LIMIT)
    return [o for o in op.operation.block.operations if o.operation in chain]


def _is_pointwise(op: Op) -> bool:
    shapes = [shape_of(v) for v in (*op.operands, *op.results)]
    return kind_of(op) in CHAIN and len(shapes) > 1 and shapes[0] == shapes[-1]


def _codes(op: Op, chain: list[Op], codes_of: Codes) -> tuple[ir.Value, ir.Value] | None:
    """The one value before a chain, or made floats in it, that is codes; and the codes."""
    given = _given(chain)
    turned = [o for o in chain if kind_of(o) == "stablehlo.convert"]
    whole = [v for o in turned if (v := o.operands[0]) in given]
    pairs = [(v, v) for v in dict.fromkeys(whole) if dtype_of(v).kind in "iu" and not _is_spread(v)]
    pairs += [(v, codes_of[v]) for v in given if v in codes_of]
    size = math.prod(shape_of(op.results[0]))
    pairs = [(v, codes) for v, codes in pairs if math.prod(shape_of(v)) == size]
    return pairs[0] if len(pairs) == 1 else None


def _is_spread(value: ir.Value) -> bool:
    return maker(value, *SPREAD) is not None


def _computed(chain: list[Op], source: ir.Value, number: int) -> ir.Value:
    """The last value of a chain, with a number in the place of all codes."""
    known = {source: OPS.convert(OPS.full(source, np.int8(number)), dtype_of(source))}
    for op in chain:
        known[op.results[0]] = copied(op, [known.get(v, v) for v in op.operands]).results[0]
    return OPS.convert(known[chain[-1].results[0]], np.float32)
