"""Parameter leaves become the named arrays of a program, and so do the stored weights of a module
that this compiler wrote, which are checked.

The module's attribute `jq.encodings` lists those; each is a `jq.dequantize` of constants. Encoding,
types, shapes and data must be those that are listed, and no weight may decode to NaN or infinity.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.deep import Steps, deep
from jq.base.errors import LOG, UserError
from jq.formats import Encoding, Leaf, QuantizedTensor, get_format
from jq.frontends.tracing.constants import constant_array
from jq.ir import Program, at, dtype_of, ir, maker, replace, string_attr, users
from jq.ir.encodings import Arrays, Listed, describe, digest_of, write_encodings
from jq.ir.markers import DEQUANTIZE, Marker, dequantize, match
from jq.ir.ops import Contraction, Movement, rule_of

_PIECE = 1 << 20


def bind(block: ir.Block, first: int, leaves: Sequence[tuple[str, Any]]) -> dict[str, Leaf]:
    """Gives the arguments of `@main` from `first` on their data, and removes the unused ones.

    Leaves that are the same memory (tied weights) become the argument of the first of them."""
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
        LOG.info("%d parameters are not used: %s", len(unused), ", ".join(unused))
    return weights


def data_of(leaf: Leaf) -> np.ndarray:
    """The array of a weight; of a quantized one only its shape and type, without any memory."""
    if isinstance(leaf, QuantizedTensor):
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return np.ascontiguousarray(leaf).reshape(leaf.shape)


def _array(leaf: Any, arg: ir.Value, name: str) -> np.ndarray:
    """The leaf's data in the type it was traced with, in the leaf's memory where that is possible.

    NaN is refused, and infinity where a contraction reads it: a mask, or a bound that clips
    nothing, is only added, compared or chosen."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        what = "the weight is a shape (jax.ShapeDtypeStruct) without values"
        hint = "give the parameters' arrays; example inputs alone may be shapes"
        raise UserError(what, op=name, hint=hint)
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
    return leaf.__array_interface__["data"][0], leaf.shape, leaf.dtype, leaf.strides


def restore_stored(program: Program, listed: dict[str, Listed]) -> None:
    """Makes the parts of every stored weight weights of the program.

    Raises:
        UserError: the list and the data do not agree."""
    missing = dict(listed)
    for op in list(program.walk()):
        marker = match(op, DEQUANTIZE)
        if marker is None:
            continue
        name = marker.tensor
        if name not in listed and any(_data(program, v) is None for v in marker.parts.values()):
            continue  # codes that the program computes: an activation
        if name not in listed or listed[name].encoding != marker.encoding:
            raise _wrong(name, "the module does not list it as it is encoded")
        missing.pop(name, None)
        arrays = _checked_parts(program, marker)
        _check_data(name, marker.encoding, arrays, listed[name].digest)
        with at(op):
            parts = {k: program.add_weight(f"{name}:{k}", v) for k, v in arrays.items()}
            dtype = dtype_of(op.results[0])
            value = dequantize(program, marker.encoding, parts, dtype, tensor=name)
        replace(op, [value])
        program.encodings[name] = describe(marker.encoding, arrays, dtype)
    if missing:
        raise _wrong(min(missing), "the module lists it but does not hold it")
    _drop_old(program)
    program.drop_unused_weights()
    write_encodings(program)


def _check_data(name: str, enc: Encoding, arrays: Arrays, digest: str | None) -> None:
    if digest is not None and digest_of(arrays) != digest:
        raise _wrong(name, "its data are not those that the module lists (sha256 differs)")
    if not np.isfinite(get_format(enc.format).to_numpy(arrays, enc)).all():
        raise _wrong(name, "it decodes to NaN or infinity")


def _checked_parts(program: Program, marker: Marker) -> dict[str, np.ndarray]:
    fmt, enc = get_format(marker.encoding.format), marker.encoding
    fmt.check(enc)
    arrays = {name: _data(program, value) for name, value in marker.parts.items()}
    expected = fmt.storage(enc)
    for name, (shape, dtype) in expected.items():
        array = arrays.get(name)
        if array is None or (array.shape, array.dtype) != (shape, dtype):
            has = "missing or computed" if array is None else f"{array.dtype}{list(array.shape)}"
            raise _wrong(marker.tensor, f"{name} is {has}, {enc.format} needs {dtype}{list(shape)}")
    return {name: np.ascontiguousarray(arrays[name]) for name in expected}


def _data(program: Program, value: ir.Value) -> np.ndarray | None:
    """The array of a weight or constant; None for anything else."""
    name = program.weight_name(value)
    if name is not None:
        return program.weights[name]
    owner = maker(value, "stablehlo.constant")
    return None if owner is None else constant_array(owner.attributes["value"], value.type)


def _drop_old(program: Program) -> None:
    """Erases the decompositions that came with the module and serve no marker any more."""
    used = {
        ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
        for op in program.walk()
        if op.operation.name == "stablehlo.composite"
    }
    for op in list(program.module.body.operations):
        name = string_attr(op, "sym_name") or ""
        if name.startswith(DEQUANTIZE) and name not in used:
            op.erase()


def _wrong(name: str, reason: str) -> UserError:
    return UserError(f"the encoding of a stored weight is wrong: {reason}", op=name)
