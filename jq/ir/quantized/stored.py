"""Back from parts that have element types of their own to the bytes in which they are stored."""

from dataclasses import dataclass, field

from jq.base.errors import FormatError, UserError
from jq.formats import Encoding, get_format
from jq.ir import Op, Program, at, dtype_of, ir
from jq.ir.build import constant_of
from jq.ir.constants import dense_array
from jq.ir.markers import (
    DEQUANTIZE,
    QUANTIZE_DYNAMIC,
    Marker,
    dequantize,
    match,
    quantize_dynamic,
)
from jq.ir.quantized.elements import as_stored
from jq.ir.quantized.parts import ELEMENTS, STORED
from jq.ir.values import kind_of, maker, users


def has_typed_parts(op: Op) -> bool:
    """True if `jq/ir/quantized/parts.py` may have written an op."""
    return kind_of(op) in (DEQUANTIZE, QUANTIZE_DYNAMIC, ELEMENTS, STORED)


@dataclass
class StoredParts:
    """The stored form of parts.

    Attributes:
        stored: bytes, by the value of the element type that they are.
        constants: those whose bytes are constants now.
    """

    program: Program
    stored: dict[ir.Value, ir.Value] = field(default_factory=dict)
    constants: list[Op] = field(default_factory=list)

    def back(self, op: Op) -> bool:
        """Takes an op of typed parts for one of bytes; False where it is none."""
        kind = kind_of(op)
        if kind == ELEMENTS:
            self.stored[op.results[0]] = op.operands[0]
            return True
        if kind == STORED and op.operands[0] in self.stored:
            op.results[0].replace_all_uses_with(self.stored[op.operands[0]])
            return True
        marker = _typed_marker(op)
        if marker is None:
            return False
        with at(op):
            if marker.kind == DEQUANTIZE:
                self._dequantize(marker)
            else:
                self._quantize(marker)
        return True

    def part(self, value: ir.Value, enc: Encoding, part: str, tensor: str) -> ir.Value:
        """A part in bytes, of a value that has its element type.

        Raises:
            UserError: it is neither a constant of that type, nor computed from bytes.
        """
        dtype = get_format(enc.format).element_types(enc).get(part)
        if dtype is None:
            return value
        if value in self.stored:
            return self.stored[value]
        if dtype_of(value) != dtype:
            raise UserError(f"{part} of {enc.format} are {dtype_of(value).name}", op=tensor)
        array = dense_array(value) if maker(value, "stablehlo.constant") else None
        if array is None:
            raise UserError(f"{part} of {enc.format} are no constant", op=tensor)
        location = value.owner.location
        with location:
            self.stored[value] = constant_of(as_stored(array, enc, part))
        self.constants.append(value.owner)
        return self.stored[value]

    def drop_constants(self) -> None:
        """Erases those of element types that nothing reads any more: they would become weights."""
        for op in self.constants:
            if not users(op.results[0]):
                op.erase()

    def _dequantize(self, marker: Marker) -> None:
        enc, tensor = marker.encoding, marker.tensor
        parts = {k: self.part(v, enc, k, tensor) for k, v in marker.parts.items()}
        dtype = dtype_of(marker.op.results[0])
        made = dequantize(self.program, enc, parts, dtype, tensor=tensor)
        marker.op.results[0].replace_all_uses_with(made)

    def _quantize(self, marker: Marker) -> None:
        x, enc = marker.op.operands[0], marker.encoding
        made = quantize_dynamic(self.program, x, enc, tensor=marker.tensor)
        for name, value in marker.parts.items():
            if made[name].type == value.type:
                value.replace_all_uses_with(made[name])
            else:
                self.stored[value] = made[name]


def _typed_marker(op: Op) -> Marker | None:
    """A marker of which a part has its element type."""
    try:
        marker = match(op, DEQUANTIZE, QUANTIZE_DYNAMIC)
        if marker is None:
            return None
        types = get_format(marker.encoding.format).element_types(marker.encoding)
        typed = any(dtype_of(v) == types.get(k) for k, v in marker.parts.items())
    except (KeyError, ValueError, TypeError, FormatError):
        return None  # refused where markers are checked
    return marker if typed else None
