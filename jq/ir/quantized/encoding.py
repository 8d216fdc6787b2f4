"""Who is quantized, and how: the answer for any value of a program, at any level."""

import math

from jq.base.deep import Steps, deep
from jq.formats import Encoding
from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.encodings import encoding_in
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.dataflow import Encodings
from jq.ir.ops.lattice import Encoded
from jq.ir.ops.lookup import of_one_type
from jq.ir.quantized.elements import ELEMENT_TYPES
from jq.ir.quantized.kinds import encoding_of_type, is_quantized


def encoding(program: Program, value: ir.Value | str) -> Encoding | None:
    """The encoding of a value, by the model or by the compiler; None where its numbers are floats.

    Args:
        program: of any level; every call analyses it anew (`Encodings` answers for many values).
        value: a float value of the program, codes that one stands for, a value with a quantized
            type (of the module that `--emit qdq` writes), or the name of a stored weight. Sums of
            32 bits are in no format.

    Example:
        ```python
        small = jq.quantize_weights(model, "int4", weight_num_threshold=64)
        print(jq.encoding(jq.trace(small).program, "head/kernel").format)  # int4
        ```
    """
    if isinstance(value, str):
        entry = program.encodings.get(value)
        return None if entry is None else encoding_in(entry)
    if marker := match(value, DEQUANTIZE):
        return marker.encoding
    if is_quantized(value.type):
        return encoding_of_type(value.type)
    if dtype_of(value).kind in "iu" or dtype_of(value) in ELEMENT_TYPES:
        return _of_codes(value)
    state = Encodings(program).of(value)
    return state.encoding if isinstance(state, Encoded) else None


@deep
def _of_codes(value: ir.Value) -> Steps[Encoding | None]:
    """The encoding that integers are dequantized by, after what moves or chooses them."""
    for use in value.uses:
        reader = match(use.owner, DEQUANTIZE)
        if reader is not None and reader.parts["codes"] == value:
            return reader.encoding
        results = list(use.owner.results)
        if len(results) == 1 and is_quantized(results[0].type):
            return encoding_of_type(results[0].type)  # a cast
        if len(results) != 1 or dtype_of(results[0]) != dtype_of(value):
            continue
        if use.operand_number not in of_one_type(use.owner):
            continue
        after = yield (results[0],)
        if after is not None and math.prod(after.grid) == 1:
            shape = shape_of(value)
            return after.with_shape(shape, (0,) * len(shape))
    return None
