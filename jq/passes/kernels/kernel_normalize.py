"""LayerNorm and RMSNorm over the last axis, and the quantization of their result, as one kernel.

    [reduce, subtract, multiply, rsqrt, ... of %x]  [composite "jq.quantize_dynamic"]
    ->
    call @jq_normalize(%x, %gamma, %beta)

Recognised by what is computed, however it is written. Float reductions may differ by roundings."""

from dataclasses import dataclass

import numpy as np

from jq.ir import OPS, Op, Program, at, ir, maker, only_user, shape_of
from jq.ir.markers import QUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.kernels import Normalize, RowQuantization
from jq.passes.base import Pass, PassContext
from jq.passes.functions import Normalization, find_normalization
from jq.passes.kernels._kernel import call_kernel, column_factors, isa_of, rows_and_columns
from jq.passes.kernels.kernel_quantize import row_scheme, static_parameters


class KernelNormalize(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa = isa_of(cx.target)
        erased: set[int] = set()  # a LayerNorm holds an RMSNorm of the centred rows
        for x, owner in _sources(program) if isa else ():
            if owner in erased:
                continue
            normalization = find_normalization(program, x)
            if normalization is not None:
                erased |= {hash(op.operation) for op in normalization.cut.ops}
                _lower(program, normalization, isa or "")
        return bool(erased)


def _sources(program: Program) -> list[tuple[ir.Value, int]]:
    """Values whose rows are summed, directly or as squares; each with the hash of its op, which
    still tells ops apart when some are gone."""
    sources: dict[ir.Value, int] = {}
    for op in program.walk():
        if op.operation.name != "stablehlo.reduce" or len(op.results) != 1:
            continue
        value = op.operands[0]
        product = maker(value, "stablehlo.multiply")
        if product is not None and product.operands[0] == product.operands[1]:
            value = product.operands[0]
        defined = maker(value)
        sources[value] = 0 if defined is None else hash(defined.operation)
    return list(sources.items())


def _lower(program: Program, n: Normalization, isa: str) -> None:
    result, x = n.cut.result, n.cut.source
    found = _quantizer(program, result)
    marker, scheme, factors = (found.marker, found.scheme, found.factors) if found else (None,) * 3
    users = [use.owner.operation for use in result.uses]
    keep = found is None or any(u != found.reader for u in users)
    m, k = rows_and_columns(shape_of(x))
    kernel = Normalize(
        isa=isa,
        m=m,
        k=k,
        epsilon=n.epsilon,
        center=n.center,
        gamma=n.gamma is not None,
        beta=n.beta is not None,
        keep=keep,
        scheme=scheme,
        factors=factors is not None,
    )
    last = n.cut.ops[-1]
    name = marker.tensor if marker else "normalize"
    with at(last, after=True):
        operands = [x]
        for part, vector in (("gamma", n.gamma), ("beta", n.beta), ("factors", factors)):
            if vector is not None:
                operands.append(program.add_weight(f"{name}:{part}", np.ascontiguousarray(vector)))
        if marker and scheme and not scheme.dynamic:
            operands += map(OPS.constant, static_parameters(program, marker) or ())
        results = call_kernel(program, kernel, operands, f"{name}/normalize")
        kept = [OPS.reshape(results.pop(0), shape_of(result))] if keep else []
        codes = [
            OPS.reshape(v, shape_of(r))
            for v, r in zip(results, marker.op.results if marker else (), strict=True)
        ]
    if marker:
        for old, new in zip(marker.op.results, codes, strict=True):
            old.replace_all_uses_with(new)
        marker.op.erase()
        if factors is not None and found:
            found.reader.erase()
    if kept:
        result.replace_all_uses_with(kept[0])
    for op in reversed(n.cut.ops):
        op.erase()


@dataclass(frozen=True)
class Quantizer:
    """A quantization of rows that a normalization can do as well. `reader` is the op that reads the
    rows: the marker, or a product with `factors` in front of it."""

    marker: Marker
    scheme: RowQuantization
    reader: Op
    factors: np.ndarray | None = None


def _quantizer(program: Program, value: ir.Value) -> Quantizer | None:
    """The first such reader of a value."""
    for use in value.uses:
        reader, factors = use.owner.operation, None
        op: Op = reader
        if reader.name == "stablehlo.multiply" and (product := only_user(reader.results[0])):
            scaled = column_factors(program, reader.results[0])
            if scaled is None or scaled[0] != value:
                continue
            op, factors = product, scaled[1]
        marker = match(op, QUANTIZE, QUANTIZE_DYNAMIC)
        scheme = row_scheme(program, marker) if marker else None
        if marker and scheme:
            return Quantizer(marker, scheme, reader, factors)
    return None
