"""TOSA's operators in JAX, by the pseudocode of its specification: integers of 8 to 64 bits.

https://www.mlplatform.org/tosa/tosa_spec.html. int32 wraps where TOSA leaves it open."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.tosa.schema import ROUNDINGS

Array = Any
I32, I64 = np.int32, np.int64


@dataclass(frozen=True)
class Operator:
    """One operator of a file, whose result is the tensor `output`."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]

    def list_of(self, key: str, count: int) -> list[int]:
        found = [int(n) for n in self.attributes.get(key, ())]
        if len(found) != count:
            raise ValueError(f"{self.output} has no {count} numbers of {key}")
        return found


Read = Callable[[str], Array]
Known = Mapping[str, np.ndarray]
Call = Callable[[Operator, Read, Known], Array]


def _convolved(x: Array, w: Array, strides: Any, padding: Any, **how: Any) -> Array:
    how["dimension_numbers"] = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, strides, padding, **how)


def _zero(known: Known, name: str) -> Any:
    return known[name].reshape(()).astype(I32)


def _window(op: Operator, read: Read, known: Known) -> Array:
    """CONV2D and DEPTHWISE_CONV2D: what is padded is the zero point, which is subtracted behind."""
    x, w, bias = map(read, op.inputs[:3])
    zero, of_w = (_zero(known, name) for name in op.inputs[3:5])
    if op.kind == "DEPTHWISE_CONV2D":
        groups = x.shape[3]
        w = w.reshape(*w.shape[:2], 1, -1)
    else:
        groups, w = 1, w.transpose(1, 2, 3, 0)
    top, bottom, left, right = op.list_of("pad", 4)
    x = jax.lax.pad(
        x, zero.astype(x.dtype), [(0, 0, 0), (top, bottom, 0), (left, right, 0), (0,) * 3]
    )
    if of_w:
        x, w, zero = x.astype(I32) - zero, w.astype(I32) - of_w, np.int32(0)
    stride, dilation = op.list_of("stride", 2), op.list_of("dilation", 2)
    how = {"feature_group_count": groups, "preferred_element_type": I32}
    made = _convolved(x, w, stride, "VALID", rhs_dilation=dilation, **how)
    return made - zero * w.astype(I32).sum((0, 1, 2), dtype=I32) + bias


def _transposed(op: Operator, read: Read, known: Known) -> Array:
    x, w, bias = map(read, op.inputs[:3])
    zero, of_w = (_zero(known, name) for name in op.inputs[3:5])
    x, w = x.astype(I32) - zero, w.astype(I32) - of_w
    pads, stride = op.list_of("out_pad", 4), op.list_of("stride", 2)
    sides = zip(w.shape[1:3], pads[::2], pads[1::2], strict=True)
    padding = [(k - 1 + a, k - 1 + b) for k, a, b in sides]
    kernel = jnp.flip(w, (1, 2)).transpose(1, 2, 3, 0)
    return _convolved(x, kernel, (1, 1), padding, lhs_dilation=stride) + bias


def _matmul(op: Operator, read: Read, known: Known) -> Array:
    pairs = zip(op.inputs[:2], op.inputs[2:], strict=True)
    a, b = (read(x).astype(I32) - _zero(known, z) for x, z in pairs)
    return jax.lax.dot_general(a, b, (([2], [1]), ([0], [0])))


def _rescale(op: Operator, read: Read, known: Known) -> Array:
    x, output = read(op.inputs[0]), known[op.inputs[4]]
    by, shift = (known[name].reshape(-1).astype(I64) for name in op.inputs[1:3])
    flags = ("input_unsigned", "output_unsigned")
    rounding = op.attributes.get("rounding_mode", 0)
    if any(op.attributes.get(f) for f in flags) or not op.attributes.get("scale32"):
        raise ValueError(f"{op.output}: unsigned codes and multipliers of 16 bits are not read")
    if rounding not in ROUNDINGS.values() or (shift < 2).any() or (shift > 62).any():
        raise ValueError(f"{op.output}: a rounding or a shift that is not read")
    value = x.astype(I64) - _zero(known, op.inputs[3])
    half = np.left_shift(I64(1), shift - 1)
    if rounding == ROUNDINGS["double"]:
        second = np.where(shift > 31, I64(1) << 30, 0)
        half = half + jnp.where(value >= 0, second, -second)
    made = ((value * by + half) >> shift) + _zero(known, op.inputs[4])
    ends = np.iinfo(output.dtype)
    return jnp.clip(made, ends.min, ends.max).astype(output.dtype)


def _clamp(op: Operator, read: Read, known: Known) -> Array:
    x = read(op.inputs[0])
    low, high = (np.asarray(op.attributes[k], np.uint8) for k in ("min_val", "max_val"))
    return jnp.clip(x, low.view(x.dtype)[0], high.view(x.dtype)[0])


def _multiply(op: Operator, read: Read, known: Known) -> Array:
    a, b = (read(name) for name in op.inputs[:2])
    shift = int(known[op.inputs[2]].reshape(()))
    product = a.astype(I64) * b.astype(I64)
    if shift:
        product = (product + (1 << (shift - 1))) >> shift
    return product.astype(I32)


def _shifted_right(op: Operator, read: Read, known: Known) -> Array:
    if op.attributes.get("round"):
        raise ValueError(f"{op.output}: a shift that rounds is not read")
    return jnp.right_shift(*map(read, op.inputs))


def _max_pool(op: Operator, read: Read, known: Known) -> Array:
    x, (top, bottom, left, right) = read(op.inputs[0]), op.list_of("pad", 4)
    window, stride = ((1, *op.list_of(key, 2), 1) for key in ("kernel", "stride"))
    padding = ((0, 0), (top, bottom), (left, right), (0, 0))
    least = np.array(np.iinfo(x.dtype).min, x.dtype)
    return jax.lax.reduce_window(x, least, jax.lax.max, window, stride, padding)


def _table(op: Operator, read: Read, known: Known) -> Array:
    x, table = read(op.inputs[0]), read(op.inputs[1])
    if (x.dtype, table.shape) != (np.dtype(np.int8), (256,)):
        raise ValueError(f"{op.output}: only tables of int8 are read")
    return table[x.astype(I32) + 128]


def _gather(op: Operator, read: Read, known: Known) -> Array:
    x, index = map(read, op.inputs)
    return jnp.take_along_axis(x, index[:, :, None], 1, mode="clip")


def _slice(op: Operator, read: Read, known: Known) -> Array:
    start, size = (known[name].tolist() for name in op.inputs[1:])
    end = [a + n for a, n in zip(start, size, strict=True)]
    return jax.lax.slice(read(op.inputs[0]), start, end)


def _pad(op: Operator, read: Read, known: Known) -> Array:
    pairs = known[op.inputs[1]].reshape(-1, 2).tolist()
    value = known[op.inputs[2]].reshape(())
    return jax.lax.pad(read(op.inputs[0]), value, [(a, b, 0) for a, b in pairs])


def _each(f: Callable[..., Array]) -> Call:
    return lambda op, read, known: f(*map(read, op.inputs))


def _along(f: Callable[..., Array]) -> Call:
    return lambda op, read, known: f(
        read(op.inputs[0]), axis=int(op.attributes.get("axis", 0)), keepdims=True
    ).astype(read(op.inputs[0]).dtype)


_ALIKE = "ABS ADD BITWISE_AND EQUAL GREATER GREATER_EQUAL LOGICAL_AND LOGICAL_NOT LOGICAL_OR"
_OWN = _matmul, _rescale, _clamp, _table, _gather, _slice, _pad
CALLS: dict[str, Call] = {
    **{k: _each(getattr(jnp, k.lower())) for k in (*_ALIKE.split(), "MAXIMUM", "MINIMUM")},
    **{f.__name__[1:].upper(): f for f in _OWN},
    **dict.fromkeys(("CONST", "CONST_SHAPE"), lambda op, read, known: read(op.output)),
    **dict.fromkeys(("CONV2D", "DEPTHWISE_CONV2D"), _window),
    "TRANSPOSE_CONV2D": _transposed,
    "MUL": _multiply,
    "MAX_POOL2D": _max_pool,
    "SUB": _each(jnp.subtract),
    "LOGICAL_LEFT_SHIFT": _each(jnp.left_shift),
    "ARITHMETIC_RIGHT_SHIFT": _shifted_right,
    "SELECT": _each(jnp.where),
    "REDUCE_SUM": _along(jnp.sum),
    "REDUCE_MAX": _along(jnp.max),
    "REDUCE_MIN": _along(jnp.min),
    "IDENTITY": lambda op, read, known: read(op.inputs[0]),
    "CONCAT": lambda op, read, known: jnp.concatenate(
        [read(name) for name in op.inputs], int(op.attributes.get("axis", 0))
    ),
    "RESHAPE": lambda op, read, known: read(op.inputs[0]).reshape(known[op.inputs[1]].tolist()),
    "REVERSE": lambda op, read, known: jnp.flip(read(op.inputs[0]), op.attributes.get("axis", 0)),
    "TILE": lambda op, read, known: jnp.tile(read(op.inputs[0]), known[op.inputs[1]].tolist()),
    "TRANSPOSE": lambda op, read, known: read(op.inputs[0]).transpose(*op.attributes["perms"]),
}
