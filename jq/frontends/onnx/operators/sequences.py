"""Sequences and optionals, where their length is known while tracing."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, Call, Known, operator


def _at(position: Any, n: int) -> int:
    i = int(position.reshape(-1)[0])
    return i + n if i < 0 else i


@operator("SequenceConstruct", fold=False)
def sequence_construct(*xs: Array) -> Any:
    return list(xs)


@operator("SequenceEmpty", fold=False)
def sequence_empty(*, dtype: int = 1) -> Any:
    return []


@operator("SequenceAt", fold=False)
def sequence_at(sequence: Any, position: Known) -> Array:
    return sequence[_at(position, len(sequence))]


@operator("SequenceErase", fold=False)
def sequence_erase(sequence: Any, position: Known = None) -> Any:
    i = len(sequence) - 1 if position is None else _at(position, len(sequence))
    return sequence[:i] + sequence[i + 1 :]


@operator("SequenceInsert", fold=False)
def sequence_insert(sequence: Any, x: Array, position: Known = None) -> Any:
    i = len(sequence) if position is None else _at(position, len(sequence))
    return [*sequence[:i], x, *sequence[i:]]


@operator("SequenceLength", fold=False)
def sequence_length(sequence: Any) -> Array:
    return np.asarray(len(sequence), np.int64)


@operator("ConcatFromSequence", fold=False)
def concat_from_sequence(sequence: Any, *, axis: int, new_axis: int = 0) -> Array:
    return jnp.stack(sequence, axis) if new_axis else jnp.concatenate(sequence, axis)


@operator("SplitToSequence", fold=False)
def split_to_sequence(x: Array, split: Known = None, *, axis: int, keepdims: int = 1) -> Any:
    n = x.shape[axis]
    if split is None:
        parts = jnp.split(x, n, axis=axis)
        return parts if keepdims else [jnp.squeeze(p, axis) for p in parts]
    if split.ndim == 0:
        cuts = list(range(int(split), n, int(split)))
    else:
        cuts = np.cumsum(split)[:-1].tolist()
    return jnp.split(x, cuts, axis=axis)


@operator("Optional", fold=False)
def optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@operator("OptionalGetElement", fold=False)
def optional_get_element(x: Any, *, node: Call) -> Any:
    if x is None:
        raise node.refuse("the optional is empty")
    return x


@operator("OptionalHasElement", fold=False)
def optional_has_element(x: Any = None) -> Array:
    return np.asarray(x is not None)


@operator("SequenceMap", codes=True, fold=False)
def sequence_map(sequence: Any, *others: Any, body: Any, node: Call) -> Any:
    """The body on each element; another sequence gives one of its own, a tensor is the same."""
    results = [
        node.run(body, [x, *(o[i] if isinstance(o, list) else o for o in others)])
        for i, x in enumerate(sequence)
    ]
    return tuple(list(column) for column in zip(*results, strict=True))
