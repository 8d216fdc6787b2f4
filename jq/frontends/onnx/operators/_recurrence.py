"""The steps of a recurrent operator, in either direction, for sequences of their own lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import Attributes


@dataclass(frozen=True)
class Cells(Attributes):
    """The attributes that all recurrent operators have."""

    hidden_size: int
    direction: str = "forward"
    layout: int = 0
    activations: Any = None
    activation_alpha: Any = None
    activation_beta: Any = None
    clip: float | None = None

    def clipped(self, x: Any) -> Any:
        return jnp.clip(x, -self.clip, self.clip) if self.clip else x


def product(x: Any, weights: Any, d: int) -> Any:
    """By the weights of a direction, [directions, outputs, inputs], or by what a function makes."""
    if callable(weights):
        return weights(x, d)
    return x @ weights[d].T


def run(
    x: Any,
    w: Any,
    lengths: Any,
    initial: Sequence[Any],
    cells: Cells,
    prepare: Callable[[int], Any],
) -> tuple[Any, ...]:
    """Y [steps, directions, batch, hidden] and the last state of each, in the chosen layout.

    What the input contributes is one product for all steps, in front of the loop.
    """
    x, layout, hidden = jnp.asarray(x), cells.layout, cells.hidden_size
    x = jnp.swapaxes(x, 0, 1) if layout else x
    steps, batch = x.shape[:2]
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[cells.direction]
    outputs, finals = [], []
    for d, reverse in enumerate(ways):
        state = tuple(_first(h, d, batch, hidden, x.dtype, layout) for h in initial)
        step, gates = prepare(d), product(x, w, d)
        y, last = _steps(step, gates, state, reverse, lengths, steps)
        outputs.append(y)
        finals.append(last)
    y = jnp.stack(outputs, axis=1)
    last = [jnp.stack(s) for s in zip(*finals, strict=True)]
    if layout:
        y, last = jnp.transpose(y, (2, 0, 1, 3)), [jnp.swapaxes(s, 0, 1) for s in last]
    return (y, *last)


def _first(h: Any, d: int, batch: int, hidden: int, dtype: Any, layout: int) -> Any:
    if h is None:
        return jnp.zeros((batch, hidden), dtype)
    return jnp.asarray(h[:, d] if layout else h[d])


def _steps(
    step: Any, gates: Any, state: Any, reverse: bool, lengths: Any, steps: int
) -> tuple[Any, Any]:
    """The output of each step and the last states, in the order in which the input has them."""

    def body(state: Any, gates: Any) -> Any:
        new = step(state, gates)
        return new, new[0]

    if lengths is not None:
        return _steps_of_lengths(step, gates, state, reverse, jnp.asarray(lengths), steps)
    last, y = lax.scan(body, state, gates, reverse=reverse)
    return y, last


def _steps_of_lengths(
    step: Any, gates: Any, state: Any, reverse: bool, lengths: Any, steps: int
) -> tuple[Any, Any]:
    """Steps after a sample's length leave its state as it is and give zeros.

    As in ONNX Runtime, all samples are at their first step at once, also in reverse, and a sample
    that has ended computes with zeros: a range over the state of all samples has neither old nor
    early ones in it. What has no step at all ends with zeros.
    """
    time = jnp.arange(steps, dtype=np.int32)
    lengths = lengths.astype(np.int32)

    def body(state: Any, item: Any) -> Any:
        gates, t = item
        going = (t <= lengths)[:, None]
        new = step(tuple(jnp.where(going, s, jnp.zeros_like(s)) for s in state), gates)
        live = (t < lengths)[:, None]
        kept = tuple(jnp.where(live, n, s) for n, s in zip(new, state, strict=True))
        return kept, jnp.where(live, new[0], jnp.zeros_like(new[0]))

    turned = partial(_turned, lengths=lengths) if reverse else lambda x: x
    last, y = lax.scan(body, state, (turned(gates), time))
    some = (lengths > 0)[:, None]
    return turned(y), tuple(jnp.where(some, s, jnp.zeros_like(s)) for s in last)


def _turned(x: Any, lengths: Any) -> Any:
    """`x` [steps, batch, ...], the first steps of each sample in reverse order."""
    time = jnp.arange(x.shape[0], dtype=np.int32)[:, None]
    places = jnp.where(time < lengths, lengths - 1 - time, time)
    return jnp.take_along_axis(x, places[..., None], axis=0, mode="clip")
