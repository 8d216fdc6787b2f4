"""The result of every op if it alone were quantized: a second copy of it in the float program.

%y = dot_general %x, %w
->
%y = dot_general %x, %w
%q:3 = composite "jq.quantize_dynamic" %x
%d = composite "jq.dequantize" %q#0, %q#1, %q#2
%v = composite "jq.dequantize" %codes, %scale    // what the quantized program stores of %w
%z = dot_general %d, %v"""

from collections.abc import Mapping

import numpy as np

from jq.base.deep import Steps, deep
from jq.formats import Encoding, get_format
from jq.ir import NAME, Op, Program, at, copied, dtype_of, ir
from jq.ir.encodings import store
from jq.ir.quantized.elements import as_stored
from jq.passes.qdq.place_activations import through_codes
from jq.planning.decisions import OpPlan, TensorPlan
from jq.planning.operands import op_name


class Isolation:
    """Adds the copies to `program` (in place).

    `stored` has what was chosen for weights, `NAME:PART`; others are rounded plainly."""

    def __init__(self, program: Program, stored: Mapping[str, np.ndarray]) -> None:
        self.program, self.stored = program, stored
        self._weights: dict[tuple[str, Encoding], ir.Value] = {}

    def result(self, op: Op, plan: OpPlan) -> ir.Value:
        """The result of `op` on quantized operands; its own where none is quantized."""
        operands = {i: self._operand(op, i, p) for i, p in plan.operands.items()}
        if all(value == op.operands[i] for i, value in operands.items()):
            return op.results[0]
        with at(op, after=True):
            copy = op.operation.clone()
        del copy.attributes[NAME]
        for i, value in operands.items():
            copy.operands[i] = value
        return copy.results[0]

    def _operand(self, op: Op, index: int, p: TensorPlan) -> ir.Value:
        value: ir.Value = op.operands[index]
        if p.stored or p.kind == "given":  # quantized in the float model, too
            return value
        if p.weight is not None:
            return moved(self.program, value, self._weight(p.weight, p.encoding))
        return through_codes(self.program, op, value, p, f"{op_name(op)}:{index}")

    def _weight(self, name: str, enc: Encoding) -> ir.Value:
        """The float tensor that the quantized program computes with in place of a weight."""
        if (name, enc) in self._weights:
            return self._weights[name, enc]
        decoded = self.stored.get(f"{name}:decoded")
        if decoded is not None:
            value = self.program.add_weight(f"{name}:decoded", decoded)
        else:
            arrays = parts_of(self.program.weights[name], name, enc, self.stored)
            dtype = dtype_of(self.program.weight(name))
            value = store(self.program, name, enc, arrays, dtype)
        self._weights[name, enc] = value
        return value


def parts_of(
    weight: np.ndarray, name: str, enc: Encoding, stored: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The parts that are stored for a weight, else those of plain rounding."""
    fmt = get_format(enc.format)
    parts = {}
    for part, (shape, dtype) in fmt.storage(enc).items():
        array = stored.get(f"{name}:{part}")
        if array is not None and array.dtype == fmt.element_types(enc).get(part):
            array = as_stored(array, enc, part)  # `weights.emit=quant-type`
        if array is None or (array.shape, array.dtype) != (shape, dtype):
            return fmt.encode(weight, enc)
        parts[part] = array
    return parts


@deep
def moved(program: Program, value: ir.Value, weight: ir.Value) -> Steps[ir.Value]:
    """The movements between a weight and `value`, on another weight."""
    if program.weight_name(value) is not None:
        return weight
    op: Op = value.owner
    source = yield program, op.operands[0], weight
    with at(op, after=True):
        return copied(op, [source]).results[0]
