"""Parameter leaves become the named arrays of a program."""

import logging
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.deep import Steps, deep
from jq.base.errors import UserError
from jq.formats.tensor import QuantizedTensor
from jq.ir import dtype_of, ir
from jq.ir.ops import Contraction, Movement, rule_of
from jq.ir.values import users

log = logging.getLogger("jq")

_PIECE = 1 << 20
Leaf = np.ndarray | QuantizedTensor


def bind(block: ir.Block, first: int, leaves: Sequence[tuple[str, Any]]) -> dict[str, Leaf]:
    """Gives the arguments of `@main` from `first` on their data, and removes the unused ones.

    Leaves that are the same memory (tied weights) become the argument of the first of them.
    """
    weights: dict[str, Leaf] = {}
    known: dict[Any, ir.Value] = {}
    unused, erased = [], []
    for arg, (name, leaf) in zip(list(block.arguments)[first:], leaves, strict=False):
        if not any(True for _ in arg.uses):
            unused.append(name)
            erased.append(arg.arg_number)
            continue
        data = leaf if isinstance(leaf, QuantizedTensor) else _array(leaf, arg, name)
        twin = known.setdefault(_memory(data), arg)
        if twin == arg:
            weights[name] = data
        else:
            arg.replace_all_uses_with(twin)
            erased.append(arg.arg_number)
    for i in reversed(erased):
        block.erase_argument(i)
    if unused:
        log.info("%d parameters are not used: %s", len(unused), ", ".join(unused))
    return weights


def data_of(leaf: Leaf) -> np.ndarray:
    """The array of a weight; of a quantized one only its shape and type, without any memory."""
    if isinstance(leaf, QuantizedTensor):
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return np.ascontiguousarray(leaf).reshape(leaf.shape)


def _array(leaf: Any, arg: ir.Value, name: str) -> np.ndarray:
    """The leaf's data in the type it was traced with, in the leaf's memory where that is possible.

    NaN is refused, and infinity where a contraction reads it: a mask, or a bound that clips
    nothing, is only added, compared or chosen.
    """
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise UserError(
            "the weight is a shape (jax.ShapeDtypeStruct) without values",
            op=name,
            hint="give the parameters' arrays; example inputs alone may be shapes",
        )
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf).astype(dtype_of(arg), copy=False)
    if not is_finite(array) and (np.isnan(array).any() or _is_multiplied(arg)):
        raise UserError("weight holds NaN or infinity", op=name, hint="check the checkpoint")
    return array


@deep
def _is_multiplied(value: ir.Value) -> Steps[bool]:
    """True if a contraction reads a value, or its elements moved."""
    for op in users(value):
        rule = rule_of(op)
        if isinstance(rule, Contraction):
            return True
        for result in op.operation.results if isinstance(rule, Movement) else ():
            if (yield (result,)):
                return True
    return False


def is_finite(array: np.ndarray) -> bool:
    """True if no float is NaN or infinity, found a piece at a time: no large temporaries."""
    if not jnp.issubdtype(array.dtype, np.floating):
        return True
    flat = array.reshape(-1)
    return all(_is_finite(flat[i : i + _PIECE]) for i in range(0, flat.size, _PIECE))


def _is_finite(x: np.ndarray) -> bool:
    if x.dtype.itemsize == 2:
        # Looking at the exponent bits is far faster than arithmetic in 16 bits.
        exponent = 0x7C00 if x.dtype == np.float16 else 0x7F80
        return not ((x.view(np.uint16) & exponent) == exponent).any()
    # A sum is finite unless an element is not, or it overflows: then every one is looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(x.astype(np.float32, copy=False).sum(dtype=np.float64)))
        return finite or bool(np.isfinite(x).all())


def _memory(leaf: Leaf) -> Any:
    """Equal for leaves that are the same memory read in the same way."""
    if isinstance(leaf, QuantizedTensor):
        return id(leaf)
    address = leaf.__array_interface__["data"][0]
    return address, leaf.shape, leaf.dtype, leaf.strides
