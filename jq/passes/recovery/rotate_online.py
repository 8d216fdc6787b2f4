"""Activations go through a Hadamard transform in front of products, weights through its inverse.

    y = x W   ->   y = (x H) (H^T W / n)

Every channel of x H is a sum of all of them, with signs: none is an outlier, and
one scale serves all (Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024;
its online transforms). H H^T = n I, so the float program computes what it did within rounding. The
transform takes one small step a factor of n, not a product with H (`_hadamard`).

Where activations have a scale for each block of channels (MX, nvfp4), the transform of a whole row
spreads an outlier over all blocks, and that of single blocks leaves it in its own (Egiazarian et
al., "Bridging the Gap Between Promise and Performance for Microscaling FP4 Quantization", 2025).
Both are tried, for each input, and the better is taken.

It costs at run time. So it is placed where it pays: products are tried on some rows of the
calibration data, quantized as they will be."""

from collections.abc import Mapping, Sequence

import numpy as np

from jq.formats import NUMPY, Encoding, get_format, unpacked
from jq.ir import OPS, Program, at, dtype_of, editing, ir, shape_of, stablehlo, tensor_type
from jq.ir.ops.lookup import contraction
from jq.ir.ops.rules.dot_general import PLAIN
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery._hadamard import balanced, block_of, factors_of, matrix
from jq.passes.recovery._inputs import Use, planned_weights
from jq.passes.recovery._product_inputs import Input, find_inputs
from jq.passes.recovery._rotations import Rotation
from jq.planning.moments.collect import Moments, collect
from jq.target.settings import FLOAT, Settings

ROWS = 256  # of each input that are looked at


class RotateOnline(Recovery):
    """Options: `gain`, how many times smaller the error on the calibration data must be."""

    gain: float = 1.3
    power: float = 0.5

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return cx.settings.weights.format != FLOAT

    def recover(self, program: Program, cx: PassContext) -> bool:
        encodings = planned_weights(program, cx)
        inputs = [i for i in find_inputs(program) if _rotatable(i, encodings)]
        wanted = [use.wanted for i in inputs for use in i.uses(program)]
        seen = collect(program, cx.data or (), wanted, power=self.power, full=False, rows=ROWS)
        changed = False
        for number, i in enumerate(inputs):
            uses = i.uses(program)
            moments = [seen[use.wanted.name] for use in uses]
            gains = {
                most: _gain(program, i, most, uses, moments, encodings, cx.settings)
                for most in _blocks(i, cx.settings)
            }
            most = max(gains, key=gains.__getitem__)
            gain, names = gains[most], ", ".join(i.channels)
            block = block_of(i.width, most)
            LOG.info("rotate-online: %s: error / %.2f in blocks of %d", names, gain, block)
            if gain >= self.gain:
                _apply(program, i, most)
                changed = True
            cx.report((number + 1) / len(inputs))
        return program.tidied(changed)


def transform(x: ir.Value, axis: int, most: int = 0) -> ir.Value:
    """x H along an axis, block by block, at the current insertion point; H as in `matrix`."""
    shape, rank = shape_of(x), len(shape_of(x))
    order = [*(a for a in range(rank) if a != axis), axis]
    factors, block = factors_of(shape[axis], most), block_of(shape[axis], most)
    lead = [shape[a] for a in order[:-1]]
    value = OPS.reshape(OPS.transpose(x, order), [*lead, shape[axis] // block, *factors])
    for n in factors:
        value = _step(value, rank, n)
    value = OPS.reshape(value, [*lead, shape[axis]])
    return OPS.transpose(value, [int(a) for a in np.argsort(order)])


def _step(x: ir.Value, axis: int, n: int) -> ir.Value:
    """The axis, of size n, goes to the end, times the Hadamard matrix of that order: after as many
    steps as there are factors all axes are where they were."""
    shape, signs = shape_of(x), balanced(n)
    result = tensor_type([*shape[:axis], *shape[axis + 1 :], n], dtype_of(x))
    numbers = stablehlo.DotDimensionNumbers.get([], [], [axis], [0])
    factor = OPS.constant(signs.astype(dtype_of(x)))
    product = stablehlo.dot_general(result, x, factor, numbers)
    with editing():
        product.owner.attributes[PLAIN] = ir.UnitAttr.get()
    return product


def turned(array: np.ndarray, axis: int, most: int = 0) -> np.ndarray:
    """`transform` in NumPy, f64."""
    block = block_of(width := array.shape[axis], most)
    return Rotation(axis, width // block, block).apply(array, matrix(width, most))


def _rotatable(i: Input, encodings: Mapping[str, Encoding]) -> bool:
    known = i.channels.keys() <= encodings.keys()
    # A depthwise or grouped convolution does not sum over all channels.
    rules = [(contraction(op.operation.name), op, operand) for op, operand in i.readers]
    mixed = all(rule and i.axis in rule.summed_with(op, operand) for rule, op, operand in rules)
    axes = all(own_axis(i, n) is not None for n in i.channels)
    return known and mixed and block_of(i.width) > 1 and axes


def own_axis(i: Input, name: str) -> int | None:
    """The one axis of a weight that its channels lie along, if it has one."""
    channels = i.channels[name]
    axes = [a for a, n in enumerate(channels.shape) if (channels != channels.take([0], a)).any()]
    if i.width == 1 or len(axes) != 1 or channels.shape[axes[0]] != i.width:
        return None
    ids = np.moveaxis(channels, axes[0], -1).reshape(-1, i.width)
    return axes[0] if (ids == np.arange(i.width)).all() else None


def _blocks(i: Input, settings: Settings) -> list[int]:
    """The sizes of blocks to try, 0 for the largest: that of the activations' scales, too, where
    they have one for each block of channels."""
    a = settings.activations
    own = get_format(a.format).default_block((1, i.width), 1) if a.format != FLOAT else None
    size = own[1] if own else 0
    return [0, size] if 1 < block_of(i.width, size or 1) < block_of(i.width) else [0]


def _gain(
    program: Program,
    i: Input,
    most: int,
    uses: Sequence[Use],
    moments: Sequence[Moments],
    encodings: Mapping[str, Encoding],
    settings: Settings,
) -> float:
    """The squared error of the products over what it is with the transform."""
    before = after = 0.0
    for use, m in zip(uses, moments, strict=True):
        name, shape = use.matrix.name, use.matrix
        axis = own_axis(i, name)
        assert axis is not None
        weight = np.asarray(program.weights[name], np.float64)
        rows = m.rows.reshape(-1, *shape.permuted[: shape.contracted])
        place = 1 + shape.order.index(axis)
        whole = m.rows.astype(np.float64) @ shape.of(weight)
        for rotate in (False, True):
            w = turned(weight, axis, most) / block_of(i.width, most) if rotate else weight
            x = turned(rows, place, most) if rotate else rows
            fmt = get_format(encodings[name].format)
            parts = fmt.encode(w.astype(np.float32), encodings[name])
            stored = np.asarray(fmt.decode(NUMPY, parts, encodings[name]), np.float64)
            result = _rounded(x.reshape(m.rows.shape), settings) @ shape.of(stored)
            error = float((((result - whole) ** 2).sum(1) * m.share).sum())
            before, after = (before, after + error) if rotate else (before + error, after)
    return before / max(after, 1e-300)


def _rounded(rows: np.ndarray, settings: Settings) -> np.ndarray:
    """Activations as they will be: with one range, or with one a row."""
    a = settings.activations
    if a.format == FLOAT:
        return rows
    shared = a.mode == "static" or a.granularity == "per-tensor"
    own = get_format(a.format).default_block(rows.shape, 1)
    enc = unpacked(Encoding(a.format, rows.shape, own or (0 if shared else 1, 0), a.scheme))
    found = get_format(a.format).fake_quantize(NUMPY, rows.astype(np.float32), enc)
    return np.asarray(found, np.float64)


def _apply(program: Program, i: Input, most: int) -> None:
    with at(i.readers[0][0]):
        value = transform(i.value, i.axis, most)
    for op, operand in i.readers:
        op.operands[operand] = value
    for name in i.channels:
        axis, old = own_axis(i, name), np.asarray(program.weights[name])
        assert axis is not None
        new = turned(old, axis, most) / block_of(i.width, most)
        program.weights[name] = np.ascontiguousarray(new.astype(old.dtype))
