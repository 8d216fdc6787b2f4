"""The markers of a module in which `jq/ir/quantized/markers.py` has written quantized types."""

from collections.abc import Mapping

import numpy as np

from jq.base.errors import UserError
from jq.formats import Encoding
from jq.ir import Op, Program, ir
from jq.ir.arrays import OPS
from jq.ir.constants import evaluate
from jq.ir.markers import QUANTIZE, dequantize, encoding_of, quantize
from jq.ir.mlir_context import at
from jq.ir.quantized.kinds import CAST, is_quantized, kind_of
from jq.ir.quantized.markers import KINDS
from jq.ir.quantized.opened import open_values
from jq.ir.quantized.stored import StoredParts, has_typed_parts
from jq.ir.types import to_dtype
from jq.ir.values import walk


def from_quant_types(module: ir.Module) -> None:
    """The markers of a module that `jq/ir/quantized/markers.py` wrote, in place.

    Raises:
        UserError: what an op says of itself is not its type.
    """
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    ops = [op for f in functions for op in walk(f.regions[0].blocks[0])]
    if not any(set(KINDS) & set(op.attributes) or has_typed_parts(op) for op in ops):
        return
    open_values(ops)
    ops = [op for f in functions for op in walk(f.regions[0].blocks[0])]
    program = Program(module, {}, (), ())
    parts, plain = StoredParts(program), dict[ir.Value, ir.Value]()
    done = [op for op in ops if parts.back(op) or _back(program, op, plain, parts)]
    for op in reversed(done):
        if not any(True for v in op.results for _ in v.uses):
            op.erase()
    parts.drop_constants()


def _back(program: Program, op: Op, plain: dict[ir.Value, ir.Value], parts: StoredParts) -> bool:
    """Puts a marker in the place of an op; `plain` has the integers of codes."""
    name, attributes = op.operation.name, op.attributes
    x, result = (*op.operands, None)[0], (*op.results, None)[0]
    if name == CAST:
        if x in plain and result.type == plain[x].type:
            result.replace_all_uses_with(plain[x])
        elif x in plain:
            parts.stored[result] = plain[x]  # of less than 8 bits
        elif is_quantized(result.type) and not is_quantized(x.type):
            plain[result] = x
        return True
    kind = next((k for k, n in KINDS.items() if n == name and k in attributes), None)
    if kind is None:
        return False
    said = ir.DictAttr(attributes[kind])
    enc, tensor = encoding_of(said), ir.StringAttr(said["tensor"]).value
    with at(op):
        held = {a.name: _constant(a.attr) for a in ir.DictAttr(said["values"])}
        values = {k: evaluate(program, v) for k, v in held.items()}
        quantized = result if kind == QUANTIZE else x
        if quantized.type != kind_of(enc, values):
            raise UserError("a quantized type is not what its op says", op=tensor)
        if kind == QUANTIZE:
            plain[result] = quantize(program, x, enc, held, tensor=tensor)["codes"]
        elif x in plain:
            codes = parts.part(plain[x], enc, "codes", tensor)
            _dequantized(program, op, {"codes": codes, **held}, enc, said)
        else:
            return False
    return True


def _constant(attr: ir.Attribute) -> ir.Value:
    made = ir.Operation.create(
        "stablehlo.constant", results=[attr.type], attributes={"value": attr}
    )
    return made.result


def _dequantized(
    program: Program, op: Op, parts: Mapping[str, ir.Value], enc: Encoding, said: ir.DictAttr
) -> None:
    dtype = to_dtype(ir.TypeAttr(said["type"]).value)
    value = dequantize(program, enc, parts, dtype, tensor=ir.StringAttr(said["tensor"]).value)
    for use in list(op.results[0].uses):
        if use.owner.operation.name == "stablehlo.convert" and (
            use.owner.results[0].type == value.type
        ):
            use.owner.results[0].replace_all_uses_with(value)
    op.results[0].replace_all_uses_with(OPS.convert(value, np.float32))
