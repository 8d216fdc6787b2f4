"""Weights that arrive quantized keep their codes, in the format that they are in.

Behind the operand of a contraction (`_stored_parts` finds codes, scale and zero point): blocks are
what shares a scale. Only where the format gives the numbers that the model computes, within two
roundings of its type; what does not fit any format is noted, and becomes a float weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from jq.errors import FormatError
from jq.formats import Encoding, Format, get_format
from jq.formats.affine import affine_format
from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.stored import store
from jq.ir.values import maker
from jq.ops.lookup import rule_of
from jq.passes.prepare._lost_codes import lost_codes
from jq.passes.prepare._stored_parts import FLOATS, Arriving, arriving
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.planning import contractions

F32 = np.dtype(np.float32)
Parts = tuple[Encoding, dict[str, np.ndarray]]


def store_arriving(program: Program) -> tuple[bool, list[str]]:
    """Whether there were any, and the names of those that no format holds, or that come in a form
    that is not known."""
    constant, lost = Constant(program), list[str]()
    found: dict[ir.Value, tuple[set[str], Arriving]] = {}
    for value in _candidates(program):
        names = constant.weights(value)
        if value in found or not names or program.weight_name(value):
            continue
        parts = arriving(program, value)
        if parts is not None and _pays(program, value, names):
            found[value] = names, parts
        elif parts is None and (unknown := lost_codes(program, value, constant)):
            lost.append(unknown)
    arrays, stored = iter(_evaluated(program, found)), 0
    for value, (names, parts) in found.items():
        name = max(names, key=lambda n: program.weights[n].size)
        whole, codes = next(arrays), next(arrays)
        scale = next(arrays) if parts.scale is not None else np.ones((), F32)
        zero = next(arrays) if parts.zero is not None else np.zeros((), F32)
        packed = codes.size > max(program.weights[n].nbytes for n in names)
        fmt = _format(codes, packed=packed, table=parts.table)
        if parts.difference is not None:
            codes, zero, fmt = _simpler(codes, zero, fmt, next(arrays), packed=packed)
        kinds = {program.weights[n].dtype.name for n in names}
        made = None if fmt is None else _parts(fmt, codes, scale, zero, kinds)
        if made is None or not _gives(made, whole):
            lost.append(name)
            continue
        if 2 * made[1]["codes"].nbytes > 3 * sum(program.weights[n].nbytes for n in names):
            continue  # a small weight that is repeated
        dtype = dtype_of(value)
        value.replace_all_uses_with(store(program, name, *made, dtype))
        stored += 1
    program.drop_dead()
    return bool(stored), list(dict.fromkeys(lost))


def _candidates(program: Program) -> Iterator[ir.Value]:
    """What contractions read, further up than what a stored tensor moves through."""
    for op, rule in list(contractions(program)):
        for role in rule.roles(op):
            value = op.operation.operands[role.index]
            while (
                (mover := maker(value, "stablehlo.transpose", "stablehlo.convert"))
                and rule_of(mover) is not None
                and dtype_of(mover.operation.operands[0]).name in FLOATS
            ):
                value = mover.operation.operands[0]
            if dtype_of(value).name in FLOATS:
                yield value


def _pays(program: Program, value: ir.Value, names: set[str]) -> bool:
    """Not what a small weight is repeated to: no more elements than quarters of bytes."""
    return math.prod(shape_of(value)) <= 4 * sum(program.weights[n].nbytes for n in names)


def _evaluated(program: Program, found: dict[ir.Value, tuple[set[str], Arriving]]) -> list[Any]:
    wanted: list[ir.Value] = []
    for value, (_, parts) in found.items():
        wanted += [value, *(v for v in parts.values if v is not None)]
    computed = [v for v in dict.fromkeys(wanted) if maker(v) is not None]
    arrays = dict(zip(computed, evaluate_all(program, computed), strict=True))
    held = {v: program.weights[n] for v in wanted if (n := program.weight_name(v))}
    return [held[v] if v in held else arrays[v] for v in wanted]


def _simpler(
    codes: np.ndarray, zero: np.ndarray, fmt: Format | None, difference: np.ndarray, *, packed: bool
) -> tuple[np.ndarray, np.ndarray, Format | None]:
    """Codes without zero points where they have no more bits than those with."""
    plain = _format(difference, packed=packed, table="")
    bits = [64 if f is None else f.integer_bits or 64 for f in (plain, fmt)]
    if bits[0] > bits[1]:
        return codes, zero, fmt
    return difference, np.zeros((), F32), plain


def as_stored(codes: np.ndarray) -> Parts:
    """Integer codes of at most 8 bits, with a scale of 1."""
    fmt = _format(codes, packed=False, table="")
    made = fmt and _parts(fmt, codes, np.ones((), F32), np.zeros((), F32), set())
    assert made
    return made


def _parts(
    fmt: Format, codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, kinds: set[str]
) -> Parts | None:
    """The codes as they are in a format; None where it does not hold them."""
    block = tuple(_run(codes.shape, a, (scale, zero)) for a in range(codes.ndim))
    scale, zero = (_sampled(np.broadcast_to(x, codes.shape), block) for x in (scale, zero))
    kept = (k for k in sorted(kinds & {"bfloat16", "float16"}) if _same(scale, np.dtype(k)))
    enc = Encoding(fmt.name, codes.shape, block, scale_type=next(kept, "float32"))
    parts = {"scale": scale.astype(enc.scale_type)}
    narrow = "float8_e8m0fnu" in kinds or (fmt.name == "fp4_e2m1" and "uint8" in kinds)
    if narrow and (exponents := _exponents(scale)) is not None:
        fmt, parts = _with_exponents(fmt, block), {"scale": exponents}
        enc = replace(enc, format=fmt.name, scale_type="float8_e8m0fnu")
    if (held := fmt.of_codes(codes, zero, enc)) is None:
        return None
    enc, stored = held
    try:
        fmt.check(enc)
    except FormatError:
        return None
    return enc, {"codes": stored.pop("codes"), **parts, **stored}


def _format(codes: np.ndarray, *, packed: bool, table: str) -> Format | None:
    """What codes are in. `packed`: they came several in a byte."""
    if table:
        return get_format(table)
    name = codes.dtype.name
    if name == "float4_e2m1fn":
        return get_format("fp4_e2m1")
    if name in Format.registry and not packed:
        return get_format(name)
    if codes.dtype.kind not in "iu" or not codes.size:
        return None
    low, high = int(codes.min()), int(codes.max())
    sizes = (*(("int2", "uint2") if packed else ()), "int4", "uint4", "int8", "uint8")
    for fmt in (affine_format(n) for n in sizes):
        first = 0 if fmt.unsigned else -(1 << (fmt.bits - 1))
        if first <= low and high < first + (1 << fmt.bits):
            return fmt
    return None


def _exponents(scale: np.ndarray) -> np.ndarray | None:
    """The e8m0 codes of powers of two; None for other numbers."""
    mantissa, exponent = np.frexp(scale)
    codes = exponent + 126
    exact = (mantissa == 0.5).all() and (codes >= 0).all() and (codes < 255).all()
    return codes.astype(np.uint8).view(np.int8) if exact else None


def _with_exponents(fmt: Format, block: tuple[int, ...]) -> Format:
    """The MX format of an element where its blocks are those of MX."""
    mx = {"float8_e4m3fn": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2", "fp4_e2m1": "mxfp4"}
    one = sorted(block) == [1] * (len(block) - 1) + [32]
    return get_format(mx[fmt.name]) if one and fmt.name in mx else fmt


def _run(shape: tuple[int, ...], axis: int, arrays: Sequence[np.ndarray]) -> int:
    """How many indices of an axis share their parameters; 0 for all."""
    starts = {0}
    for x in (np.broadcast_to(a, shape) for a in arrays):
        differ = np.moveaxis(x[_from(axis, 1)] != x[_to(axis, -1)], axis, 0)
        starts |= set((np.flatnonzero(differ.any(tuple(range(1, differ.ndim)))) + 1).tolist())
    return 0 if starts == {0} else math.gcd(*starts, shape[axis])


def _from(axis: int, start: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(start, None),)


def _to(axis: int, end: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(None, end),)


def _sampled(x: np.ndarray, block: tuple[int, ...]) -> np.ndarray:
    """One number for each block."""
    steps = tuple(slice(None, None, b) if b else slice(0, 1) for b in block)
    return np.ascontiguousarray(x[steps])


def _same(x: np.ndarray, dtype: np.dtype[Any]) -> bool:
    return np.array_equal(x.astype(dtype).astype(x.dtype), x)


def _gives(made: Parts, whole: np.ndarray) -> bool:
    """Whether the parts stand for the numbers of the model, each rounded at most twice."""
    enc, parts = made
    fmt = get_format(enc.format)
    decoded = np.asarray(fmt.to_numpy(parts, enc), np.float64)
    bound = 2.0 ** -ml_dtypes.finfo(whole.dtype).nmant
    wanted = whole.astype(np.float64)
    return bool((np.abs(decoded - wanted) <= bound * np.abs(wanted)).all())
