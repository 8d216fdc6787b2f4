"""Other ways to compute what IREE or the passes cannot take, with the same numbers.

Exactly, as XLA does on a CPU, where a model lets it be approximate (`jax.lax.approx_max_k` and
`approx_min_k`, and every `DotAlgorithmPreset`, which IREE 3.13 does not lower). Sums are in float32
or float64, and an operand that has more bits than the algorithm wants keeps them:

    custom_call @ApproxTopK(%x, %i, ...) {called_computations = [@greater], top_k = 4, ...}
    ->
    slice (sort(%x, %i) {greater, in an order that has a place for NaN}), [0:4]

    dot_general %a, %b, algorithm = <bf16, bf16, accumulation f32> : (bf16, bf16) -> bf16
    ->
    convert (dot_general %a, %b : (bf16, bf16) -> f32) : bf16

Tensors without elements are constants, so that nobody asks for their ranges:

    slice %x : tensor<3x8xf32> -> tensor<3x0xf32>          ->  dense<> : tensor<3x0xf32>
    concatenate %x, %e : tensor<3x8xf32>, tensor<3x0xf32>  ->  %x
    reduce(%e init: %i) : tensor<3x0xf32>                  ->  %i : tensor<3xf32>
    dot_general %x, %w : tensor<3x0xf32>, tensor<0x8xf32>  ->  0 : tensor<3x8xf32>

    dynamic_slice %x, %i : tensor<3x8xf32> -> tensor<3x8xf32>   ->  %x

Contractions without a single product are zero: IREE 3.13 crashes on them, and on slices of tensors
without axes at a position of the data. A slice of the whole begins at its start, wherever asked.

What is the same in every step of a loop is computed outside of it. `jax.lax.scan` hands the stacked
weights of its layers through the loop as carried values. Once the body reads them where they are
defined, an op in the body can be traced to its weight; also where the body first joins several
weights, or reads another part of one."""

import math

import numpy as np

from jq.frontends.tracing.quantized_types import all_ops
from jq.ir import Op, at, dtype_of, ir, last_of, shape_of, stablehlo, to_dtype, walk
from jq.ir.arrays import OPS, SAFE_KINDS
from jq.ir.build import inlined, integer, like, replace, strided_slice, string_attr
from jq.ir.hoist import block_of, end_with, rebuilt
from jq.ir.ops.lookup import is_product
from jq.ir.types import number_kind
from jq.ir.values import functions_of

TARGET, ALGORITHM = "ApproxTopK", "algorithm"
TOTAL = "#stablehlo<comparison_type TOTALORDER>"


def sort_approximate(module: ir.Module) -> None:
    """Replaces the calls in place; the comparing functions stay, and have no reader then."""
    functions = functions_of(module)
    for op in all_ops(module):
        if string_attr(op, "call_target_name") == TARGET:
            symbol = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0])
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
    with ir.InsertionPoint(block):
        stablehlo.return_(inlined(compare, list(block.arguments)))
    for each in block.operations:
        if isinstance(each, stablehlo.CompareOp) and number_kind(dtype_of(each.lhs)) == "f":
            each.attributes["compare_type"] = ir.Attribute.parse(TOTAL)
    pairs = zip(sort.results, map(shape_of, op.results), strict=True)
    return [strided_slice(v, [0] * len(end), end, [1] * len(end)) for v, end in pairs]


def plain_products(module: ir.Module) -> None:
    """Replaces the products of all functions in place."""
    for op in all_ops(module):
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


def drop_empty(block: ir.Block) -> None:
    """Replaces what has no elements, and what is computed from it."""
    for op in [op for op in walk(block) if op.operation.name == "stablehlo.reduce"]:
        if not _size(op.operands[0]):
            _replace(op, list(op.operands)[len(op.operands) // 2 :])
    for op in walk(block):
        name, results = op.operation.name, list(op.results)
        if len(results) != 1 or name == "stablehlo.constant" or op.regions:
            continue
        if name == "stablehlo.dynamic_slice" and op.operands[0].type == results[0].type:
            replace(op, [op.operands[0]])
            continue
        kind = dtype_of(results[0])
        empty = [v for v in op.operands if not _size(v)]
        if not _size(results[0]):
            if kind.kind in SAFE_KINDS:
                with at(op):
                    replace(op, [OPS.constant(np.zeros(shape_of(results[0]), kind))])
        elif empty and is_product(op):
            with at(op):
                zero = OPS.constant(np.zeros((), kind))
            _replace(op, [zero])
        elif empty and name == "stablehlo.concatenate":
            with at(op):
                full = [v for v in op.operands if _size(v)]
                replace(op, [OPS.concatenate(full, integer(op, "dimension"))])


def _replace(op: Op, scalars: list[ir.Value]) -> None:
    """Every result becomes one number."""
    with at(op):
        both = zip(scalars, op.results, strict=True)
        replace(op, [OPS.broadcast(scalar, shape_of(v), []) for scalar, v in both])


def _size(value: ir.Value) -> int:
    return math.prod(shape_of(value))


_DRAWN = ("stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.composite")


def hoist_invariants(block: ir.Block) -> None:
    """Drops unchanged carries from every `stablehlo.while` in `block`, and moves out what is
    computed from nothing that changes, innermost loops first."""
    for op in _loops(block):
        _hoist(op)
    for op in _loops(block):
        for inner in list(op.regions[1].blocks[0].operations):
            if _is_fixed(inner.operation):
                inner.operation.move_before(op.operation)


def _loops(block: ir.Block) -> list[ir.OpView]:
    return [op for op in walk(block) if op.operation.name == "stablehlo.while"][::-1]


def _is_fixed(op: Op) -> bool:
    """True if an op in a loop makes a float of values outside it, and none larger than those."""
    if not op.operands or len(op.results) != 1 or len(op.regions) or op.name in _DRAWN:
        return False
    outside = all(block_of(v) != op.block for v in op.operands)
    sizes = [math.prod(shape_of(v)) for v in (op.results[0], *op.operands)]
    return outside and number_kind(dtype_of(op.results[0])) == "f" and sizes[0] <= sum(sizes[1:])


def _hoist(loop: Op) -> None:
    cond, body = (region.blocks[0] for region in loop.regions)
    carried = []
    for i, (value, result) in enumerate(zip(last_of(body).operands, loop.results, strict=True)):
        if value != body.arguments[i]:
            carried.append(i)
            continue
        outer = loop.operands[i]
        for same in (cond.arguments[i], body.arguments[i], result):
            same.replace_all_uses_with(outer)
    if 0 < len(carried) < len(loop.results):
        _rebuild(loop, carried)


def _rebuild(loop: Op, carried: list[int]) -> None:
    """The same loop with only the operands `carried`."""
    kinds = [loop.results[i].type for i in carried]
    new = rebuilt(loop, [loop.operands[i] for i in carried], kinds)
    cond, body = (region.blocks[0] for region in new.regions)
    end_with(body, [last_of(body).operands[i] for i in carried])
    for block in (cond, body):
        for i in reversed(range(len(loop.results))):
            if i not in carried:
                block.erase_argument(i)
    for i, result in zip(carried, new.results, strict=True):
        loop.results[i].replace_all_uses_with(result)
    loop.erase()
