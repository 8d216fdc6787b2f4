"""Sequences and optionals, where their length is known while tracing."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, Call, Known, operator, operators


def _at(position: Any, n: int) -> int:
    """A place in a sequence of `n`; without a position the end."""
    i = n if position is None else int(position.reshape(-1)[0])
    return i + n if i < 0 else i


def _parts(sequence: Any, position: Any, end: int, *new: Any) -> Any:
    """The elements in front of a place, `new`, and those behind; one is left out where the last
    place (`end`) is that of an element."""
    i = min(_at(position, len(sequence)), len(sequence) + end)
    return [*sequence[:i], *new, *sequence[i - end :]]


operators(
    {
        "SequenceConstruct": lambda *xs: list(xs),
        "SequenceEmpty": lambda *, dtype=1: [],
        "SequenceAt": lambda sequence, position: sequence[_at(position, len(sequence))],
        "SequenceErase": lambda sequence, position=None: _parts(sequence, position, -1),
        "SequenceInsert": lambda sequence, x, position=None: _parts(sequence, position, 0, x),
        "SequenceLength": lambda sequence: np.asarray(len(sequence), np.int64),
        "ConcatFromSequence": lambda sequence, *, axis, new_axis=0: (
            jnp.stack(sequence, axis) if new_axis else jnp.concatenate(sequence, axis)
        ),
        "Optional": lambda x=None, *, type=None: x,
        "OptionalHasElement": lambda x=None: np.asarray(x is not None),
    },
    known="position",
    fold=False,
)


@operator("SplitToSequence", fold=False)
def split_to_sequence(x: Array, split: Known = None, *, axis: int, keepdims: int = 1) -> Any:
    n = x.shape[axis]
    if split is None:
        parts = jnp.split(x, n, axis=axis)
        return parts if keepdims else [jnp.squeeze(p, axis) for p in parts]
    cuts = np.cumsum(split)[:-1] if split.ndim else np.arange(int(split), n, int(split))
    return jnp.split(x, cuts.tolist(), axis=axis)


@operator("OptionalGetElement", fold=False)
def optional_get_element(x: Any, *, node: Call) -> Any:
    if x is None:
        raise node.refuse("the optional is empty")
    return x


@operator("SequenceMap", codes=True, fold=False)
def sequence_map(sequence: Any, *others: Any, body: Any, node: Call) -> Any:
    """The body on each element; another sequence gives one of its own, a tensor is the same."""
    results = [
        node.run(body, [x, *(o[i] if isinstance(o, list) else o for o in others)])
        for i, x in enumerate(sequence)
    ]
    return tuple(list(column) for column in zip(*results, strict=True))
