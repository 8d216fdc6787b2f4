"""Marker ops of the `qdq` level: composites whose decomposition is the format's own decode.

%w = stablehlo.composite "jq.dequantize" %codes, %scale {composite_attributes = {
    format = "int8", block = array<i64: 0, 1>, parts = ["codes", "scale"], ...},
    decomposition = @jq.dequantize.0} : (tensor<64x33xi8>, tensor<1x33xf32>) -> tensor<64x33xf32>"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from jq.base.errors import InternalError
from jq.formats import Encoding, affine_format, get_format, is_affine
from jq.ir.arrays import StableHloOps
from jq.ir.build import attribute, plain, settle_type, string_attr
from jq.ir.decisions import ROUNDED
from jq.ir.mlir_context import editing
from jq.ir.program import Program
from jq.ir.values import Op, functions_of, maker

DEQUANTIZE = "jq.dequantize"
QUANTIZE = "jq.quantize"
QUANTIZE_DYNAMIC = "jq.quantize_dynamic"
EDGE = "jq.edge"  # the identity, around a tensor that will be stored in low bits
_KINDS = (DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC)
Body = Callable[[StableHloOps, Sequence[ir.Value]], list[ir.Value]]


@dataclass(frozen=True)
class Marker:
    """A marker op read back: its kind, encoding, and its parts by name.

    `parts` are the operands of a dequantize or quantize (but for the quantized tensor `x`) and the
    results of a dynamic quantize."""

    op: Op
    kind: str
    encoding: Encoding
    parts: dict[str, ir.Value]
    tensor: str  # name of the float tensor, for reports
    own: str = ""  # `jq.ir.decisions.ROUNDED`


def dequantize(
    program: Program, enc: Encoding, parts: Mapping[str, ir.Value], dtype: Any, *, tensor: str = ""
) -> ir.Value:
    """The float tensor of `enc.shape` and `dtype` that `parts` stand for."""

    def body(ops: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        x = get_format(enc.format).decode(ops, dict(zip(parts, args, strict=True)), enc)
        return [ops.convert(x, dtype)]

    attrs = encoding_attributes(enc, parts, tensor)
    key = f"{enc} {list(parts)} {np.dtype(dtype).name}"
    return composite(program, DEQUANTIZE, key, attrs, list(parts.values()), body)[0]


def quantize(
    program: Program,
    x: ir.Value,
    enc: Encoding,
    parameters: Mapping[str, ir.Value],
    *,
    tensor: str = "",
    own: str = "",
) -> dict[str, ir.Value]:
    """Codes of `x` for a given scale and zero point (operands `scale`, `zero_point`)."""
    if not is_affine(enc.format):
        raise InternalError(f"activations cannot be quantized to {enc.format}")
    fmt = affine_format(enc.format)

    def body(ops: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        given = dict(zip(parameters, args[1:], strict=True))
        return [fmt.quantize_static(ops, args[0], given["scale"], given.get("zero_point"), enc)]

    attrs = encoding_attributes(enc, parameters, tensor)
    operands = [x, *parameters.values()]
    codes = composite(program, QUANTIZE, str(enc), attrs, operands, body)[0]
    if own:
        codes.owner.attributes[ROUNDED] = ir.StringAttr.get(own)
    return {"codes": codes, **parameters}


def quantize_dynamic(
    program: Program, x: ir.Value, enc: Encoding, *, tensor: str = ""
) -> dict[str, ir.Value]:
    """The parts of `x`, codes and scales, from its own range at run time."""
    fmt = get_format(enc.format)
    if not fmt.at_run_time:
        raise InternalError(f"activations cannot be quantized to {enc.format}")
    names = list(fmt.storage(enc))

    def body(ops: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        parts = fmt.quantize_dynamic(ops, args[0], enc)
        return [parts[name] for name in names]

    attrs = encoding_attributes(enc, names, tensor)
    results = composite(program, QUANTIZE_DYNAMIC, str(enc), attrs, [x], body)
    return dict(zip(names, results, strict=True))


def marker_kind(op: Op) -> str | None:
    """The kind of marker that an op is; None for any other op."""
    if op.operation.name != "stablehlo.composite":
        return None
    kind = ir.StringAttr(op.attributes["name"]).value
    return kind if kind.startswith("jq.") else None


def match(value_or_op: Any, *kinds: str) -> Marker | None:
    """The quantize or dequantize that defines a value (or is the op), when there is one, and it is
    one of `kinds`."""
    op: Op | None = maker(value_or_op) if isinstance(value_or_op, ir.Value) else value_or_op
    if op is None or marker_kind(op) not in (kinds or _KINDS):
        return None
    op = op.opview if isinstance(op, ir.Operation) else op
    kind = marker_kind(op)
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    read, made = list(op.operands), list(op.results)
    values = {DEQUANTIZE: read, QUANTIZE: read[1:], QUANTIZE_DYNAMIC: made}[kind or ""]
    parts = dict(zip(plain(attrs["parts"]), values, strict=True))
    own = string_attr(op, ROUNDED) or ""
    return Marker(op, kind or "", encoding_of(attrs), parts, plain(attrs["tensor"]), own)


def encoding_of(attrs: ir.DictAttr) -> Encoding:
    options = ir.DictAttr(attrs["options"])
    return Encoding(
        format=ir.StringAttr(attrs["format"]).value,
        shape=_sizes(attrs["shape"]),
        block=_sizes(attrs["block"]),
        scheme=ir.StringAttr(attrs["scheme"]).value,
        scale_type=ir.StringAttr(attrs["scale_type"]).value,
        options=tuple((a.name, ir.StringAttr(a.attr).value) for a in options),
    )


def _sizes(attribute: ir.Attribute) -> tuple[int, ...]:
    """Integers as we write them, or as a tensor, which is how JAX does."""
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    return tuple(int(n) for n in np.asarray(ir.DenseIntElementsAttr(attribute)))


def encoding_attributes(enc: Encoding, parts: Iterable[str], tensor: str) -> dict[str, Any]:
    """An encoding, and parts and name of the tensor, as markers state them."""
    return vars(enc) | {"options": dict(enc.options), "parts": list(parts), "tensor": tensor}


def composite(
    program: Program,
    kind: str,
    key: str | None,
    attributes: Mapping[str, Any] | ir.DictAttr,
    operands: list[ir.Value],
    body: Body,
) -> list[ir.Value]:
    """Builds a marker at the current insertion point, and its decomposition in the module, which
    markers of one kind, `key` (None: equal attributes) and types of operands share."""
    said = attribute(attributes)
    fn = _decomposition(program, f"{kind} {said if key is None else key}", kind, operands, body)
    op = ir.Operation.create(
        "stablehlo.composite",
        results=list(fn.type.results),
        operands=operands,
        attributes={
            "name": ir.StringAttr.get(kind),
            "composite_attributes": said,
            "decomposition": ir.FlatSymbolRefAttr.get(fn.name.value),
            "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0),
        },
    )
    return list(op.results)


def _decomposition(
    program: Program, key: str, kind: str, operands: list[ir.Value], body: Body
) -> func.FuncOp:
    """The private function that holds `body`, shared by equal markers of a program."""
    types = [v.type for v in operands]
    functions = functions_of(program.module)
    known, full = program.decompositions, f"{key} {types}"
    if known.get(full) in functions:
        return functions[known[full]]
    # A module that was written earlier has functions of these names, too.
    symbol = next(s for n in count(len(known)) if (s := f"{kind}.{n}") not in functions)
    known[full] = symbol
    with editing():
        with ir.InsertionPoint(program.module.body):
            fn = func.FuncOp(symbol, (types, []), visibility="private")
        block = fn.add_entry_block()
        with ir.InsertionPoint(block):
            results = body(StableHloOps(), list(block.arguments))
            func.ReturnOp(results)
    settle_type(fn)
    return fn
