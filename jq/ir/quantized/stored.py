"""Parts of markers in element types of their own, and back in the bytes that are stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jq.base.errors import FormatError, UserError
from jq.formats import Encoding, get_format
from jq.ir import Op, Program, at, dense_array, dtype_of, ir, kind_of, maker, markers, users
from jq.ir.arrays import StableHloOps
from jq.ir.build import constant_of
from jq.ir.quantized.elements import as_elements, as_stored, in_bytes, in_elements, type_of

# Markers whose parts have their element types, where no quantized type says how a tensor is held.
#
#     %d = composite "jq.dequantize" %codes, %scale
#         : (tensor<64x20xi8>, tensor<2x40xi8>) -> tensor<64x40xf32>
#     ->
#     %d = composite "jq.dequantize" %codes, %scale
#         : (tensor<64x40xf4E2M1FN>, tensor<2x40xf8E8M0FNU>) -> tensor<64x40xf32>
#
# The body of such a dequantize converts its parts and multiplies. Parts that are computed and moved
# as bytes go through composites of their own: `jq.elements` of the bytes, `jq.stored` back to them.
ELEMENTS, STORED = "jq.elements", "jq.stored"
OneBody = Callable[[ir.Value], ir.Value]


@dataclass
class TypedParts:
    """Gives parts of a program's markers their element types, at the current insertion point.

    Attributes:
        names: of the weights that have been added, by that of the stored one, encoding and part."""

    program: Program
    names: dict[tuple[str, Encoding, str], str] = field(default_factory=dict)

    def needed(self, marker: markers.Marker) -> bool:
        """True if a part of the marker has an element type."""
        types = get_format(marker.encoding.format).element_types(marker.encoding)
        return bool(types.keys() & marker.parts.keys()) and marker.kind != markers.QUANTIZE

    def rewritten(self, marker: markers.Marker) -> list[ir.Value]:
        """The results of the marker, with parts of their element types."""
        types = get_format(marker.encoding.format).element_types(marker.encoding)
        if marker.kind == markers.QUANTIZE_DYNAMIC:
            made = zip(marker.parts, quantize_typed(self.program, marker), strict=True)
            return [self.stored(v, marker, k) if k in types else v for k, v in made]
        parts = {k: self.typed(v, marker, k) if k in types else v for k, v in marker.parts.items()}
        return dequantize_typed(self.program, marker, parts)

    def typed(self, value: ir.Value, marker: markers.Marker, part: str) -> ir.Value:
        """A stored part in its element type."""
        enc = marker.encoding
        back = maker(value, STORED)
        if back is not None and dtype_of(back.operands[0]) == type_of(enc, part):
            return back.operands[0]
        name = self.program.weight_name(value)
        if name is not None:
            return self._weight(name, enc, part)
        return self._composite(ELEMENTS, marker, part, value, lambda v: in_elements(v, enc, part))

    def stored(self, value: ir.Value, marker: markers.Marker, part: str) -> ir.Value:
        """A part that has its element type, in bytes."""
        return self._composite(STORED, marker, part, value, in_bytes)

    def _weight(self, name: str, enc: Encoding, part: str) -> ir.Value:
        key = name, enc, part
        if key not in self.names:
            array = as_elements(self.program.weights[name], enc, part)
            value = self.program.add_weight(name, array)
            self.names[key] = list(self.program.weights)[-1]
            return value
        return self.program.weight(self.names[key])

    def _composite(
        self, kind: str, marker: markers.Marker, part: str, value: ir.Value, made: OneBody
    ) -> ir.Value:
        said = markers.encoding_attributes(marker.encoding, [part], marker.tensor)
        key, body = f"{marker.encoding} {part}", lambda ops, args: [made(args[0])]
        return markers.composite(self.program, kind, key, said, [value], body)[0]

    def settle(self) -> None:
        """Drops bytes that nothing reads, and what no composite stands for any more; weights get
        the names of those that they have taken the place of."""
        for op in list(self.program.walk()):
            if kind_of(op) == STORED and not users(op.results[0]):
                op.erase()
        self.program.run_passes("symbol-dce")
        self.program.rename_weights({new: key[0] for key, new in self.names.items()})


def quantize_typed(program: Program, marker: markers.Marker) -> list[ir.Value]:
    """A dynamic quantize whose results have their element types."""
    enc = marker.encoding
    fmt = get_format(enc.format)
    types = fmt.element_types(enc)

    def body(ops: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        parts = fmt.quantize_dynamic(ops, args[0], enc)
        return [
            in_elements(parts[name], enc, name) if name in types else parts[name]
            for name in marker.parts
        ]

    return _again(program, marker, list(marker.op.operands), body)


def dequantize_typed(
    program: Program, marker: markers.Marker, parts: Mapping[str, ir.Value]
) -> list[ir.Value]:
    """A dequantize of parts that have their element types."""
    fmt, dtype = get_format(marker.encoding.format), dtype_of(marker.op.results[0])

    def body(ops: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        given = dict(zip(parts, args, strict=True))
        return [ops.convert(fmt.decode_elements(ops, given, marker.encoding), dtype)]

    return _again(program, marker, list(parts.values()), body)


def _again(
    program: Program, marker: markers.Marker, operands: list[ir.Value], body: markers.Body
) -> list[ir.Value]:
    """The marker with another body."""
    own = ir.DictAttr(marker.op.attributes["composite_attributes"])
    results = [str(v.type) for v in marker.op.results]
    key = f"{marker.encoding} {list(marker.parts)} {results} elements"
    return markers.composite(program, marker.kind, key, own, operands, body)


def has_typed_parts(op: Op) -> bool:
    """True if `jq/ir/quantized/stored.py` may have written an op."""
    return kind_of(op) in (markers.DEQUANTIZE, markers.QUANTIZE_DYNAMIC, ELEMENTS, STORED)


@dataclass
class StoredParts:
    """The stored form of parts.

    Attributes:
        stored: bytes, by the value of the element type that they are.
        constants: those whose bytes are constants now."""

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
            if marker.kind == markers.DEQUANTIZE:
                self._dequantize(marker)
            else:
                self._quantize(marker)
        return True

    def part(self, value: ir.Value, enc: Encoding, part: str, tensor: str) -> ir.Value:
        """A part in bytes, of a value that has its element type.

        Raises:
            UserError: it is neither a constant of that type, nor computed from bytes."""
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
        with value.owner.location:
            self.stored[value] = constant_of(as_stored(array, enc, part))
        self.constants.append(value.owner)
        return self.stored[value]

    def drop_constants(self) -> None:
        """Erases those of element types that nothing reads any more: they would become weights."""
        for op in self.constants:
            if not users(op.results[0]):
                op.erase()

    def _dequantize(self, marker: markers.Marker) -> None:
        enc, tensor = marker.encoding, marker.tensor
        parts = {k: self.part(v, enc, k, tensor) for k, v in marker.parts.items()}
        dtype = dtype_of(marker.op.results[0])
        made = markers.dequantize(self.program, enc, parts, dtype, tensor=tensor)
        marker.op.results[0].replace_all_uses_with(made)

    def _quantize(self, marker: markers.Marker) -> None:
        x, enc = marker.op.operands[0], marker.encoding
        made = markers.quantize_dynamic(self.program, x, enc, tensor=marker.tensor)
        for name, value in marker.parts.items():
            if made[name].type == value.type:
                value.replace_all_uses_with(made[name])
            else:
                self.stored[value] = made[name]


def _typed_marker(op: Op) -> markers.Marker | None:
    """A marker of which a part has its element type."""
    try:
        marker = markers.match(op, markers.DEQUANTIZE, markers.QUANTIZE_DYNAMIC)
        if marker is None:
            return None
        types = get_format(marker.encoding.format).element_types(marker.encoding)
        typed = any(dtype_of(v) == types.get(k) for k, v in marker.parts.items())
    except (KeyError, ValueError, TypeError, FormatError):
        return None  # refused where markers are checked
    return marker if typed else None
