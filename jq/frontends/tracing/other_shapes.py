"""The shape that an input should have had, where the model cannot be traced with the one that came.

An image comes without its channels, without its batch, with its channels first, or with others than
the weights have. JAX and Flax then speak of a kernel or of broadcasting somewhere inside. Here the
model is traced with the nearest other shapes, one input at a time: the first that works is named.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

Shape = tuple[int, ...]
MOST_INPUTS, MOST_SIZES = 4, 6  # what is tried takes about as long as tracing, each time


def expected(
    program: Callable[..., Any], specs: Sequence[Any], inputs: Sequence[str]
) -> tuple[str, str] | None:
    """A sentence on the input whose shape is wrong and on the one that the model takes, and what to
    do; None where no near shape helps.

    Args:
        program: function of the leaves of inputs and parameters.
        specs: their shapes and types, inputs first.
        inputs: names of the inputs.
    """
    sizes = [n for spec in specs[len(inputs) :] for n in spec.shape]
    for i, name in enumerate(inputs[:MOST_INPUTS]):
        for shape, what, remedy in _near(specs[i].shape, sizes):
            other = jax.ShapeDtypeStruct(shape, specs[i].dtype)
            if _traces(program, [*specs[:i], other, *specs[i + 1 :]]):
                return (
                    f"input {name} has shape {specs[i].shape}, and the model takes {shape}: {what}",
                    remedy,
                )
    return None


def _near(shape: Shape, sizes: Sequence[int]) -> Iterator[tuple[Shape, str, str]]:
    """Other shapes, the likeliest first: what would be wrong, and what to do."""
    channels = (*shape, 1), "the last axis is missing, of channels or features", "give x[..., None]"
    batch = (1, *shape), "the first axis is missing, the batch", "give x[None]"
    if len(shape) < 4:
        yield from (batch, channels) if shape and shape[-1] in sizes else (channels, batch)
        both = "the axes of the batch and of the channels are missing"
        yield (1, *shape, 1), both, "give x[None, ..., None]"
    if len(shape) > 2:
        start = min(len(shape) - 3, 1)
        moved = (*shape[:start], *shape[start + 1 :], shape[start])
        first = "channels come first, and the model has them last"
        yield moved, first, f"give np.moveaxis(x, {start}, -1)"
    for n in [n for n in dict.fromkeys(sizes) if shape and n != shape[-1]][:MOST_SIZES]:
        what = f"its last axis has {shape[-1]} elements, and the weights are for {n}"
        yield (*shape[:-1], n), what, "give it that shape, or other weights"
        if len(shape) < 4 and n > 1:
            missing = f"the last axis is missing, of {n} channels or features"
            yield (*shape, n), missing, "give it that shape"


def _traces(program: Callable[..., Any], specs: Sequence[Any]) -> bool:
    try:
        jax.eval_shape(program, *specs)
    except Exception:  # of the model, for a shape that nobody gave
        return False
    return True
