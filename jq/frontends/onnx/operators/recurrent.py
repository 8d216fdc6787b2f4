"""LSTM, GRU and RNN, forward, reverse and bidirectional, for sequences of their own lengths."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.shapes import turned
from jq.frontends.onnx.registry import Given, operator

Function = Callable[[Any], Any]
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
STATES = "b[D 2*rows]? sequence_lens[B]? initial_h[D B hidden_size]?"
MEMORY = "initial_c[D B hidden_size]? p[D 3*hidden_size]?"
CELLS = (
    "hidden_size direction='forward' layout=0 clip? activations? activation_alpha? activation_beta?"
)
_INPUTS = f"x[S B I] w[D rows I] r[D rows hidden_size] {STATES}"


def activation(name: str, alpha: float | None, beta: float | None) -> Function:
    def or_(given: float | None, default: float) -> float:
        return default if given is None else given

    table: dict[str, Function] = {
        "Relu": lambda x: jnp.maximum(x, 0),
        "Tanh": jnp.tanh,
        "Sigmoid": jax.nn.sigmoid,
        "Affine": lambda x: or_(alpha, 1.0) * x + or_(beta, 0.0),
        "LeakyRelu": lambda x: jnp.where(x < 0, or_(alpha, 0.01) * x, x),
        "ThresholdedRelu": lambda x: jnp.where(x > or_(alpha, 1.0), x, 0),
        "ScaledTanh": lambda x: or_(alpha, 1.0) * jnp.tanh(or_(beta, 1.0) * x),
        "HardSigmoid": lambda x: jnp.clip(or_(alpha, 0.2) * x + or_(beta, 0.5), 0, 1),
        "Elu": lambda x: jnp.where(x < 0, or_(alpha, 1.0) * jnp.expm1(x), x),
        "Softsign": lambda x: x / (1 + jnp.abs(x)),
        "Softplus": jax.nn.softplus,
    }
    found = table[name]
    return lambda x: found(x).astype(x.dtype)


@operator("LSTM", takes=f"{_INPUTS} {MEMORY}; {CELLS} input_forget=0")
def lstm(o: Given) -> Any:
    functions, size = _functions("LSTM", o), 4 * o.hidden_size

    def prepare(d: int) -> Any:
        f, g, h_of = functions[d]
        bias = 0 if o.b is None else o.b[d][:size] + o.b[d][size:]
        pi, po, pf = (0, 0, 0) if o.p is None else jnp.split(jnp.asarray(o.p[d]), 3)

        def step(state: Any, gates: Any) -> Any:
            h, c = state
            i, out, forget, new = jnp.split(gates + _product(h, o.r, d) + bias, 4, axis=-1)
            i = f(_clipped(o, i + pi * c))
            forget = 1 - i if o.input_forget else f(_clipped(o, forget + pf * c))
            c = forget * c + i * g(_clipped(o, new))
            return f(_clipped(o, out + po * c)) * h_of(c), c

        return step

    return _run(o, [o.initial_h, o.initial_c], prepare)


@operator("GRU", takes=f"{_INPUTS}; {CELLS} linear_before_reset=0")
def gru(o: Given) -> Any:
    functions, n = _functions("GRU", o), o.hidden_size

    def prepare(d: int) -> Any:
        f, g = functions[d]
        own = jnp.zeros(6 * n, o.x.dtype) if o.b is None else jnp.asarray(o.b[d])
        wb, rb = own[: 3 * n], own[3 * n :]
        zr, new = o.r[d][: 2 * n], o.r[d][2 * n :]

        def step(state: Any, gates: Any) -> Any:
            (h,) = state
            both = gates[..., : 2 * n] + h @ zr.T + wb[: 2 * n] + rb[: 2 * n]
            z, reset = jnp.split(f(_clipped(o, both)), 2, axis=-1)
            if o.linear_before_reset:
                inner = reset * (h @ new.T + rb[2 * n :])
            else:
                inner = (reset * h) @ new.T + rb[2 * n :]
            candidate = g(_clipped(o, gates[..., 2 * n :] + inner + wb[2 * n :]))
            return ((1 - z) * candidate + z * h,)

        return step

    return _run(o, [o.initial_h], prepare)


@operator("RNN", takes=f"{_INPUTS}; {CELLS}")
def rnn(o: Given) -> Any:
    functions, n = _functions("RNN", o), o.hidden_size

    def prepare(d: int) -> Any:
        (f,) = functions[d]
        bias = 0 if o.b is None else o.b[d][:n] + o.b[d][n:]
        return lambda state, gates: (f(_clipped(o, gates + state[0] @ o.r[d].T + bias)),)

    return _run(o, [o.initial_h], prepare)


def _functions(kind: str, o: Given) -> list[list[Function]]:
    """The activation functions of each direction; those that take parameters get them in order."""
    default = _DEFAULTS[kind]
    count = 2 if o.direction == "bidirectional" else 1
    alpha, beta = list(o.activation_alpha or ()), list(o.activation_beta or ())
    with_beta = {"Affine", "ScaledTanh", "HardSigmoid"}
    with_alpha = with_beta | {"LeakyRelu", "ThresholdedRelu", "Elu"}
    functions = []
    for name in o.activations or default * count:
        a = alpha.pop(0) if alpha and name in with_alpha else None
        b = beta.pop(0) if beta and name in with_beta else None
        functions.append(activation(name, a, b))
    size = len(default)
    return [functions[i * size : (i + 1) * size] for i in range(count)]


def _clipped(o: Given, x: Any) -> Any:
    return jnp.clip(x, -o.clip, o.clip) if o.clip else x


def _product(x: Any, weights: Any, d: int) -> Any:
    """Products by the weights of a direction, [directions, outputs, inputs], or by a function's."""
    return weights(x, d) if callable(weights) else x @ weights[d].T


def _run(o: Given, initial: Sequence[Any], prepare: Callable[[int], Any]) -> tuple[Any, ...]:
    """Y [steps, directions, batch, hidden] and the last state of each, in the chosen layout.

    What the input contributes is one product for all steps, in front of the loop."""
    x = jnp.swapaxes(o.x, 0, 1) if o.layout else jnp.asarray(o.x)
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[o.direction]
    outputs, finals = [], []
    for d, reverse in enumerate(ways):
        state = tuple(
            jnp.zeros((x.shape[1], o.hidden_size), x.dtype)
            if h is None
            else jnp.asarray(h[:, d] if o.layout else h[d])
            for h in initial
        )
        y, last = _steps(prepare(d), _product(x, o.w, d), state, reverse, o.sequence_lens)
        outputs.append(y)
        finals.append(last)
    y = jnp.stack(outputs, axis=1)
    last = [jnp.stack(s) for s in zip(*finals, strict=True)]
    if o.layout:
        y, last = jnp.transpose(y, (2, 0, 1, 3)), [jnp.swapaxes(s, 0, 1) for s in last]
    return (y, *last)


def _steps(step: Any, gates: Any, state: Any, reverse: bool, lengths: Any) -> tuple[Any, Any]:
    """The output of each step and the last states, in the order in which the input has them.

    Steps after a sample's length leave its state as it is and give zeros. As in ONNX Runtime, all
    samples are at their first step at once, also in reverse, and a sample that has ended computes
    with zeros: a range over the state of all samples has neither old nor early ones in it. What has
    no step at all ends with zeros."""

    def whole(state: Any, gates: Any) -> Any:
        new = step(state, gates)
        return new, new[0]

    if lengths is None:
        last, y = lax.scan(whole, state, gates, reverse=reverse)
        return y, last
    time = jnp.arange(len(gates), dtype=np.int32)
    lengths = jnp.asarray(lengths).astype(np.int32)

    def within(state: Any, item: Any) -> Any:
        gates, t = item
        going = (t <= lengths)[:, None]
        new = step(tuple(jnp.where(going, s, jnp.zeros_like(s)) for s in state), gates)
        live = (t < lengths)[:, None]
        kept = tuple(jnp.where(live, n, s) for n, s in zip(new, state, strict=True))
        return kept, jnp.where(live, new[0], jnp.zeros_like(new[0]))

    ordered = partial(turned, lengths=lengths) if reverse else lambda x: x
    last, y = lax.scan(within, state, (ordered(gates), time))
    some = (lengths > 0)[:, None]
    return ordered(y), tuple(jnp.where(some, s, jnp.zeros_like(s)) for s in last)
