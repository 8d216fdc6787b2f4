"""Computes exactly, as XLA does on a CPU, what a model lets be approximate.

custom_call @ApproxTopK(%x, %i, ...) {called_computations = [@greater], top_k = 4, ...}
->
slice (sort(%x, %i) {greater}), [0:4]

dot_general %a, %b, algorithm = <bf16, bf16, accumulation f32> : (bf16, bf16) -> bf16
->
convert (dot_general %a, %b : (bf16, bf16) -> f32) : bf16

Those are `jax.lax.approx_max_k` and `approx_min_k`, and every `DotAlgorithmPreset`, which IREE 3.13
does not lower. Sums are in float32 or float64, and an operand that has more bits than the algorithm
wants keeps them.
"""

import numpy as np

from jq.ir import Op, at, dtype_of, func, ir, shape_of, stablehlo, to_dtype, walk
from jq.ir.arrays import StableHloOps
from jq.ir.build import like, replace, strided_slice

TARGET, ALGORITHM = "ApproxTopK", "algorithm"
OPS = StableHloOps()


def sort_approximate(module: ir.Module) -> None:
    """Replaces the calls in place; the comparing functions stay, and have no reader then."""
    functions = {op.name.value: op for op in module.body.operations if isinstance(op, func.FuncOp)}
    for function in functions.values():
        for op in walk(function.entry_block):
            if op.operation.name != "stablehlo.custom_call":
                continue
            attributes = op.attributes
            if ir.StringAttr(attributes["call_target_name"]).value == TARGET:
                symbol = ir.FlatSymbolRefAttr(ir.ArrayAttr(attributes["called_computations"])[0])
                with at(op):
                    replace(op, _sorted(op, functions[symbol.value].entry_block))


def _sorted(op: Op, compare: ir.Block) -> list[ir.Value]:
    """The first of what is sorted: numbers and their places, after which stand two defaults."""
    config = ir.DictAttr(op.attributes["mhlo.backend_config"])
    axis = ir.IntegerAttr(config["reduction_dim"])
    operands = list(op.operands)[: len(op.results)]
    sort = ir.Operation.create(
        "stablehlo.sort",
        results=[v.type for v in operands],
        operands=operands,
        attributes={"dimension": axis, "is_stable": ir.BoolAttr.get(True)},
        regions=1,
    )
    block = sort.regions[0].blocks.append(*[a.type for a in compare.arguments])
    values = dict(zip(compare.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in compare.operations:
            copy = inner.operation.clone()
            for i, value in enumerate(inner.operands):
                copy.operands[i] = values[value]
            values.update(zip(inner.results, copy.results, strict=True))
    found = []
    for value, result in zip(sort.results, op.results, strict=True):
        limit = shape_of(result)
        found.append(strided_slice(value, [0] * len(limit), limit, [1] * len(limit)))
    return found


def plain_products(module: ir.Module) -> None:
    """Replaces the products of all functions in place."""
    for function in module.body.operations:
        if isinstance(function, func.FuncOp):
            for op in list(walk(function.entry_block)):
                if ALGORITHM in op.attributes:  # only products have one
                    with at(op):
                        replace(op, [_plain(op)])


def _plain(op: Op) -> ir.Value:
    (result,) = op.results
    algorithm = stablehlo.DotAlgorithm(op.attributes[ALGORITHM])
    types = to_dtype(algorithm.accumulation_type), dtype_of(result)
    sums = np.dtype(np.float64 if np.float64 in types else np.float32)
    plain = like(op, list(op.operands), shape_of(result), sums, algorithm=None)
    return OPS.convert(plain, dtype_of(result))
