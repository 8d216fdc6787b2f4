"""StableHLO evaluated op by op in NumPy: as much of it as integer-only programs hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from jq.ir import Program, dtype_of, ir, shape_of, stablehlo
from jq.ir.build import integers

Array = np.ndarray


def run(program: Program, inputs: list[Array]) -> list[Array]:
    """The program's results. An op that is not here is a KeyError with its name."""
    known: dict[Any, Array] = dict(
        zip(program.body.arguments, [*inputs, *program.weights.values()], strict=True)
    )
    for op in program.body.operations:
        name = op.operation.name
        arrays = [known[v] for v in op.operation.operands]
        if name == "func.return":
            return arrays
        result = op.operation.results[0]
        with np.errstate(all="ignore"):
            value = np.asarray(OPS[name](arrays, op.operation))
        assert value.shape == shape_of(result), name
        known[result] = value.astype(dtype_of(result), copy=False)
    raise AssertionError("no return")


def _constant(_: list[Array], op: Any) -> Array:
    value, result = op.attributes["value"], op.results[0]
    return np.array(value).reshape(shape_of(result))


def _broadcast(arrays: list[Array], op: Any) -> Array:
    dims, shape = integers(op, "broadcast_dimensions"), shape_of(op.results[0])
    aligned = np.transpose(arrays[0], np.argsort(dims))
    sizes = [1] * len(shape)
    for axis, n in zip(sorted(dims), aligned.shape, strict=True):
        sizes[axis] = n
    return np.broadcast_to(aligned.reshape(sizes), shape)


def _dot(arrays: list[Array], op: Any) -> Array:
    d = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    names = iter("abcdefghijklmnop")
    left, right = ([""] * a.ndim for a in arrays)
    batch = [
        (i, j) for i, j in zip(d.lhs_batching_dimensions, d.rhs_batching_dimensions, strict=True)
    ]
    for i, j in [
        *batch,
        *zip(d.lhs_contracting_dimensions, d.rhs_contracting_dimensions, strict=True),
    ]:
        left[i] = right[j] = next(names)
    free = [[i for i, n in enumerate(side) if not n] for side in (left, right)]
    for side, axes in zip((left, right), free, strict=True):
        for i in axes:
            side[i] = next(names)
    out = [left[i] for i, _ in batch] + [left[i] for i in free[0]] + [right[i] for i in free[1]]
    wide = [a.astype(np.int64) for a in arrays]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", *wide)


def _reduce(arrays: list[Array], op: Any) -> Array:
    first = next(iter(op.regions[0].blocks[0].operations)).operation.name
    axes = integers(op, "dimensions")
    if first == "stablehlo.add":
        return arrays[0].sum(axes, dtype=arrays[0].dtype) + arrays[1]
    return {"stablehlo.maximum": np.maximum, "stablehlo.minimum": np.minimum}[first].reduce(
        arrays[0], axis=axes, initial=arrays[1].item()
    )


def _slice(arrays: list[Array], op: Any) -> Array:
    bounds = [integers(op, k) for k in ("start_indices", "limit_indices", "strides")]
    return arrays[0][tuple(slice(*b) for b in zip(*bounds, strict=True))]


def _pad(arrays: list[Array], op: Any) -> Array:
    ends = integers(op, "edge_padding_low"), integers(op, "edge_padding_high")
    pairs = list(zip(*ends, strict=True))  # of a scalar there are none, which NumPy refuses
    return np.pad(arrays[0], pairs, constant_values=arrays[1].item()) if pairs else arrays[0]


def _concatenate(arrays: list[Array], op: Any) -> Array:
    return np.concatenate(arrays, ir.IntegerAttr(op.attributes["dimension"]).value)


def _gather(arrays: list[Array], op: Any) -> Array:
    table, index = arrays
    assert table.ndim == 1, "only look-ups in a table"
    return table[np.clip(index, 0, len(table) - 1)].reshape(shape_of(op.results[0]))


def _convert(arrays: list[Array], op: Any) -> Array:
    return arrays[0].astype(dtype_of(op.results[0]))


_COMPARISONS = dict(
    zip(
        ("EQ", "NE", "LT", "LE", "GT", "GE"),
        (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
        strict=True,
    )
)


def _compare(arrays: list[Array], op: Any) -> Array:
    kind = str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")
    return _COMPARISONS[kind](*arrays)


def _divide(arrays: list[Array], op: Any) -> Array:
    a, b = arrays
    return a // b if a.dtype.kind == "i" else a / b


def _leading_zeros(arrays: list[Array], op: Any) -> Array:
    bits = 8 * arrays[0].itemsize
    return np.vectorize(lambda v: bits - int(v).bit_length())(arrays[0])


def _sort(arrays: list[Array], op: Any) -> Array:
    block = op.regions[0].blocks[0]
    compare = next(iter(block.operations)).operation
    assert list(compare.operands) == list(block.arguments), "only numbers by themselves"
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    rising = np.sort(arrays[0], axis=axis)
    return (
        rising if "LT" in str(compare.attributes["comparison_direction"]) else np.flip(rising, axis)
    )


OPS: dict[str, Any] = {
    f"stablehlo.{name}": rule
    for name, rule in {
        "constant": _constant,
        "broadcast_in_dim": _broadcast,
        "reshape": lambda a, op: a[0].reshape(shape_of(op.results[0])),
        "transpose": lambda a, op: a[0].transpose(integers(op, "permutation")),
        "sort": _sort,
        "reverse": lambda a, op: np.flip(a[0], integers(op, "dimensions")),
        "concatenate": lambda a, op: np.concatenate(
            a, ir.IntegerAttr(op.attributes["dimension"]).value
        ),
        "slice": _slice,
        "pad": _pad,
        "gather": _gather,
        "convert": _convert,
        "compare": _compare,
        "divide": _divide,
        "dot_general": _dot,
        "reduce": _reduce,
        "count_leading_zeros": _leading_zeros,
        "add": lambda a, op: a[0] + a[1],
        "subtract": lambda a, op: a[0] - a[1],
        "multiply": lambda a, op: a[0] * a[1],
        "maximum": lambda a, op: np.maximum(a[0], a[1]),
        "minimum": lambda a, op: np.minimum(a[0], a[1]),
        "and": lambda a, op: a[0] & a[1],
        "select": lambda a, op: np.where(*a),
        "shift_left": lambda a, op: a[0] << a[1],
        "shift_right_arithmetic": lambda a, op: a[0] >> a[1],
        "round_nearest_even": lambda a, op: np.rint(a[0]),
        "negate": lambda a, op: -a[0],
        "abs": lambda a, op: np.abs(a[0]),
    }.items()
}
