"""Weights of any StableHLO module become low-bit constants; everything else stays as it is.

    %w = stablehlo.constant dense<...> : tensor<64x33xf32>
    ->
    %c = stablehlo.constant dense<...> : tensor<64x33xi8>
    %s = stablehlo.constant dense<...> : tensor<1x33xf32>
    %w = stablehlo.composite "jq.dequantize" %c, %s

The module may have several functions, calls, loops and dynamic dimensions: a weight is a constant
that a contraction reads, through ops that only move elements, or scale them by constants."""

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.base.errors import FormatError, UserError, check_known
from jq.base.from_jax import clean_scope, scope
from jq.base.registry import unused
from jq.formats import Encoding, get_format
from jq.frontends.tracing.constants import constant_array
from jq.ir import Op, Program, at, constant_of, dtype_of, ir, walk
from jq.ir.encodings import describe, write_encodings
from jq.ir.markers import DEQUANTIZE, dequantize, match
from jq.ir.ops import Contraction, rule_of
from jq.ir.values import functions_of
from jq.planning.encodings import weight_block
from jq.planning.operands import WeightUse, find_weight
from jq.target.settings import TensorSettings

INTEGERS = ("int2", "int4", "int8", "uint2", "uint4", "uint8")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
FLOAT4 = "float4_e2m1fn"
DTYPES = (*INTEGERS, *FLOAT8, FLOAT4)
SCHEMES = ("symmetric", "asymmetric")
GRANULARITIES = ("per-tensor", "per-channel", "per-block")
E8M0 = "float8_e8m0fnu"
FLOATS = ("float16", "bfloat16", "float32")


class SkippedWeight(UserWarning):
    """An op whose weight was left as it is; the message names the op and says why."""


def skipped(op: str, kind: str, reason: str) -> None:
    warnings.warn(f"{op} ({kind}) is not quantized: {reason}", SkippedWeight, stacklevel=4)


@dataclass(frozen=True)
class WeightOptions:
    """Options of `quantize_weights`, checked; `encoding` applies them to a weight."""

    dtype: str
    qscheme: str
    granularity: str
    block_size: int
    threshold: int
    scale_dtype: str | None

    @staticmethod
    def of(
        dtype: Any, qscheme: str, granularity: str, block_size: int, threshold: int, scale: Any
    ) -> "WeightOptions":
        """Raises `UserError` for what cannot be, before any work is done."""
        options = WeightOptions(
            check_known("dtype", _type_name(dtype), DTYPES),
            check_known("qscheme", qscheme, SCHEMES),
            check_known("granularity", str(granularity).replace("_", "-"), GRANULARITIES),
            _count("block_size", block_size, 1),
            _count("weight_num_threshold", threshold, 0),
            None if scale is None else _type_name(scale),
        )
        options._check()
        return options

    def _check(self) -> None:
        if self.qscheme == "asymmetric" and self.dtype not in INTEGERS:
            reason = f"{self.dtype} has no asymmetric scheme"
            raise UserError(reason, hint="use qscheme='symmetric'")
        if self.dtype == FLOAT4 and (self.granularity, self.block_size) != ("per-block", 32):
            raise UserError(
                f"{FLOAT4} needs granularity 'per-block' with block_size 32,"
                f" got {self.granularity!r} with {self.block_size}"
            )
        if self.scale_dtype is None:
            return
        if self.dtype in INTEGERS:
            hint = "leave scale_dtype out: integers have float32 scales"
            raise UserError(f"scale_dtype is for float8 weights, dtype is {self.dtype}", hint=hint)
        if self.dtype == FLOAT4:
            raise UserError(f"the scale of {FLOAT4} is always {E8M0}", hint="leave scale_dtype out")
        check_known("scale_dtype", self.scale_dtype, (E8M0,))

    def encoding(self, use: WeightUse, dtype: np.dtype[Any]) -> Encoding:
        """The encoding of a weight of that use and element type; `FormatError` says why not."""
        count = math.prod(use.shape)
        if use.stored or dtype.name not in FLOATS:
            raise FormatError(f"it is {use.stored.format if use.stored else dtype.name} already")
        if count < self.threshold:
            raise FormatError(f"{count} elements, below the threshold of {self.threshold}")
        settings = TensorSettings.model_validate(
            {"format": self.dtype, "granularity": self.granularity, "block_size": self.block_size}
        )
        block = weight_block(use, settings)
        if E8M0 in (self.scale_dtype, self._scale_type(dtype)) and self.granularity == "per-block":
            # As in MX: neighbours along one axis share an exponent, and nothing else does.
            block = tuple(b if a == use.block_axis else 1 for a, b in enumerate(block))
        for axis, size in enumerate(block):
            if size > 1 and use.shape[axis] % size:
                raise FormatError(f"block {size} does not divide axis {axis} of {use.shape}")
        enc = Encoding(self.dtype, use.shape, block, self.qscheme, self._scale_type(dtype))
        get_format(self.dtype).check(enc)
        return enc

    def _scale_type(self, dtype: np.dtype[Any]) -> str:
        return "float32" if self.dtype not in FLOAT8 else self.scale_dtype or dtype.name


def _type_name(dtype: Any) -> str:
    if isinstance(dtype, str):
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype)


def _count(what: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{what} must be an integer of at least {least}, got {value!r}")
    return value


def quantize_module(module: ir.Module, options: WeightOptions) -> None:
    """Rewrites `module` (of our context) in place."""
    program = Program(module, {}, (), ())  # markers keep their functions in a program
    work = _Module(program, options)
    for function in functions_of(module).values():
        if function.is_external:
            continue
        for op in [o for block in function.regions[0].blocks for o in walk(block)]:
            rule = rule_of(op)
            if isinstance(rule, Contraction):
                work.contraction(op, rule)
    write_encodings(program, work.parts)


def weights_of(
    program: Program, op: Op, rule: Contraction, *, constants: bool = False
) -> list[WeightUse]:
    """The weights of an op that are quantized; `FormatError` says why there are none."""
    if reason := rule.decline(op):
        raise FormatError(reason)
    uses = [
        find_weight(program, op.operands[r.index], r, scaled=True, constants=constants)
        for r in rule.roles(op)
    ]
    weights, what = [u for u in uses if u is not None], "constant" if constants else "parameter"
    if not weights:
        raise FormatError(f"no operand is a {what}")
    if len(weights) == len(uses) > 1:
        raise FormatError(f"both operands are {what}s")
    return weights


@dataclass
class _Module:
    program: Program
    options: WeightOptions
    count: int = 0
    parts: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # by weight

    def contraction(self, op: Op, rule: Contraction) -> None:
        self.count += 1
        label = clean_scope(scope(op.location)) or f"{rule.op} {self.count}"
        try:
            self._quantize(op, rule, label)
        except FormatError as reason:
            skipped(label, rule.op, str(reason))

    def _quantize(self, op: Op, rule: Contraction, label: str) -> None:
        kinds = [v.type for v in (*op.operands, *op.results)]
        if not all(k.has_static_shape for k in kinds if isinstance(k, ir.RankedTensorType)):
            raise FormatError("dynamic shape")
        for use in weights_of(self.program, op, rule, constants=True):
            if (marker := match(use.value, DEQUANTIZE)) and marker.tensor in self.parts:
                continue  # a second use of what was quantized a moment ago
            self._store(use.value, use, label)

    def _store(self, value: ir.Value, use: WeightUse, label: str) -> None:
        enc = self.options.encoding(use, dtype_of(value))
        owner: Any = value.owner
        array = constant_array(owner.attributes["value"], value.type)
        parts = get_format(enc.format).encode(np.asarray(array), enc)
        base = clean_scope(scope(owner.location)) or f"{label}/weight"
        name = unused(base, self.parts.__contains__)
        with at(owner):
            values = {k: constant_of(v) for k, v in parts.items()}
            new = dequantize(self.program, enc, values, dtype_of(value), tensor=name)
        self.parts[name] = parts
        self.program.encodings[name] = describe(enc, parts, dtype_of(value))
        value.replace_all_uses_with(new)
        owner.operation.erase()
