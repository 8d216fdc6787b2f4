"""Values that products with weights sum over an axis of: candidates for scaling and rotation.

Whoever reads the channels must be a product that sums over them, each with a weight of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.ir import OPS, Op, Program, at, dtype_of, integers, ir, maker, shape_of
from jq.ir.decisions import SMOOTHING, decide
from jq.ir.ops import Layout, groups_of, rule_of
from jq.ir.ops.rules.convolution import Convolution
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.recovery._inputs import NotApplicable, Use, find_use
from jq.passes.recovery._producers import Edits, edits_for
from jq.planning.operands import contractions

Channels = np.ndarray  # the channel of every element of a weight, broadcast; -1: of none


@dataclass(frozen=True)
class Input:
    """A value that products with weights sum over one axis of, whoever else reads it.

    `readers`: those products, and which operand is the value; `channels`: of their weights."""

    value: ir.Value
    axis: int
    readers: list[tuple[Any, int]]
    channels: dict[str, Channels]

    @property
    def name(self) -> str:
        """The first weight's."""
        return next(iter(self.channels))

    @property
    def width(self) -> int:
        return shape_of(self.value)[self.axis]

    def uses(self, program: Program) -> list[Use]:
        return [find_use(program, op, 1 - operand) for op, operand in self.readers]

    def edits(self, program: Program, s: np.ndarray) -> Edits | None:
        """Changes of weights that divide the value by `s`; None where nothing can take that."""
        shape = [-1 if a == self.axis else 1 for a in range(len(shape_of(self.value)))]
        inverse = (1 / s).astype(np.float32).reshape(shape)
        return edits_for(program, self.value, inverse, len(self.readers))

    def scale(self, program: Program, s: np.ndarray) -> None:
        """Divides the value by `s`, by an op where nothing else can, and multiplies the weights."""
        if (edits := self.edits(program, s)) is not None:
            edits.apply(self.name)
        else:
            inverse = (1 / s).astype(np.float32).astype(dtype_of(self.value))
            with at(self.readers[0][0]):
                vector = program.add_weight(f"{self.name}:inverse", inverse)
                wide = OPS.broadcast(vector, shape_of(self.value), [self.axis])
                value = OPS.mul(self.value, wide)
            for op, operand in self.readers:
                op.operands[operand] = value
        for name, channels in self.channels.items():
            old = np.asarray(program.weights[name])
            program.weights[name] = (old * s[channels]).astype(old.dtype)


def scale_all(
    program: Program, inputs: Mapping[str, Input], factors: Mapping[str, np.ndarray], prefix: str
) -> bool:
    """Scales those with factors, which the program tells by prefixed names; True if any has."""
    for name, s in factors.items():
        if name not in inputs or inputs[name].width != len(s):
            raise UserError(f"the ranges are of another program: it scales channels of {name!r}")
        inputs[name].scale(program, s)
    if factors:
        program.drop_dead()
        decide(program, {prefix + n: {SMOOTHING: np.log2(s)} for n, s in factors.items()})
    return bool(factors)


def find_inputs(program: Program) -> list[Input]:
    """The inputs in program order; each product is in one of them."""
    inputs: dict[Any, Input] = {}
    for op, _ in contractions(program):
        for index, axis in _summed(program, op):
            value = op.operands[index]
            reader = _reader(program, op, index, axis, np.arange(shape_of(value)[axis]))
            if reader is None or dtype_of(value).kind not in "fV":
                continue
            group = inputs.setdefault((value, axis), Input(value, axis, [], {}))
            if reader[0] not in group.channels:
                group.readers.append((op, index))
                group.channels[reader[0]] = reader[1]
            break
    return list(inputs.values())


def _summed(program: Program, op: Op) -> list[tuple[int, int]]:
    """Operand and axis of what a product with a weight of its own sums over."""
    rule = rule_of(op)
    if isinstance(rule, Convolution):
        return [(0, Layout.of(op).input_feature)]
    axes = []
    for operand in (0, 1):
        try:
            wanted = find_use(program, op, operand).wanted
        except NotApplicable:
            continue
        if isinstance(rule, DotGeneral) and len(wanted.contracted) == 1:
            axes.append((wanted.operand, wanted.contracted[0]))
    return axes


def _reader(
    program: Program, op: Op, operand: int, axis: int, ids: np.ndarray
) -> tuple[str, Channels] | None:
    """The weight of a product that sums over an axis of its operand, and its channels."""
    try:
        use = find_use(program, op, 1 - operand)
    except NotApplicable:
        return None
    name, matrix = use.matrix.name, use.matrix
    if sum(1 for _ in program.weight(name).uses) != 1:
        return None
    if isinstance(rule_of(op), Convolution):
        if operand != 0 or axis != Layout.of(op).input_feature:
            return None
        return name, _kernel_channels(op, ids)
    if axis not in use.wanted.contracted:
        return None
    own = matrix.order[use.wanted.contracted.index(axis)]
    return name, ids.reshape([-1 if a == own else 1 for a in range(len(matrix.shape))])


def _kernel_channels(op: Op, ids: np.ndarray) -> Channels:
    """A filter's channels, transposed or not: group g of outputs reads group g of inputs."""
    d, groups, kernel = Layout.of(op), groups_of(op), shape_of(op.operands[1])
    inner, outer = kernel[d.kernel_in], kernel[d.kernel_out]
    group = np.arange(outer) // (outer // groups)
    channel = ids[group[None, :] * inner + np.arange(inner)[:, None]]  # [in, out]
    axes = sorted((d.kernel_in, d.kernel_out))
    if axes[0] != d.kernel_in:
        channel = channel.T
    wide = channel.reshape([kernel[a] if a in axes else 1 for a in range(len(kernel))])
    value = op.operands[1]
    while transpose := maker(value):  # `find_use` passes no other op
        wide = np.transpose(wide, np.argsort(integers(transpose, "permutation")))
        value = transpose.operands[0]
    return wide
