"""The marker of fake quantization in a traced model: one composite a call of `jq.fake_quant`.

%y = stablehlo.composite "jq.fake_quant" %x, %low, %high {composite_attributes = {
    format = "int8", scheme = "asymmetric", block = "0,0"}, decomposition = ...}

Without %low and %high the range is that of %x itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxlib.mlir import ir

from jq.formats import Encoding
from jq.ir.markers import marker_kind
from jq.ir.types import shape_of
from jq.ir.values import Op

FAKE_QUANT = "jq.fake_quant"


@dataclass(frozen=True)
class FakeQuant:
    """A marker read back; `low` and `high` have the shape of the encoding's grid."""

    op: Op
    x: ir.Value
    low: ir.Value | None
    high: ir.Value | None
    encoding: Encoding


def attributes_of(enc: Encoding) -> Mapping[str, str]:
    """The marker's attributes for an encoding; the shape is that of its operand."""
    block = ",".join(map(str, enc.block))
    return {"format": enc.format, "scheme": enc.scheme, "block": block}


def match_fake_quant(op: Op) -> FakeQuant | None:
    """The marker that an op is, or None for any other op."""
    if marker_kind(op) != FAKE_QUANT:
        return None
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    said = {key: ir.StringAttr(attrs[key]).value for key in ("format", "scheme", "block")}
    x, *rest = op.operands
    low, high = rest or (None, None)
    block = tuple(int(b) for b in said["block"].split(",") if b)
    return FakeQuant(op, x, low, high, Encoding(said["format"], shape_of(x), block, said["scheme"]))
