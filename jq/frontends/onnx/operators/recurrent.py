"""LSTM, GRU and RNN, forward, reverse and bidirectional."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jq.frontends.onnx.operators._recurrence import Cells, product, run
from jq.frontends.onnx.registry import Array, operator

Function = Callable[[Any], Any]
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


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


@operator("LSTM")
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array = None,
    sequence_lens: Array = None,
    initial_h: Array = None,
    initial_c: Array = None,
    p: Array = None,
    *,
    cells: Cells,
    input_forget: int = 0,
) -> Any:
    functions = _functions("LSTM", cells)

    def cell(d: int, weights: Any) -> Any:
        f, g, h_of = functions[d]
        bias, peep = weights

        def step(state: Any, gates: Any) -> Any:
            h, c = state
            gates = gates + product(h, r, d) + bias
            i, o, forget, new = jnp.split(gates, 4, axis=-1)
            pi, po, pf = peep
            i = f(cells.clipped(i + pi * c))
            forget = 1 - i if input_forget else f(cells.clipped(forget + pf * c))
            c = forget * c + i * g(cells.clipped(new))
            o = f(cells.clipped(o + po * c))
            return o * h_of(c), c

        return step

    def prepare(d: int) -> Any:
        size = 4 * cells.hidden_size
        bias = 0 if b is None else b[d][:size] + b[d][size:]
        peep = (0, 0, 0) if p is None else jnp.split(jnp.asarray(p[d]), 3)
        return cell(d, (bias, peep))

    return run(x, w, sequence_lens, [initial_h, initial_c], cells, prepare)


@operator("GRU")
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array = None,
    sequence_lens: Array = None,
    initial_h: Array = None,
    *,
    cells: Cells,
    linear_before_reset: int = 0,
) -> Any:
    functions = _functions("GRU", cells)
    n = cells.hidden_size

    def prepare(d: int) -> Any:
        f, g = functions[d]
        own = jnp.zeros(6 * n, x.dtype) if b is None else jnp.asarray(b[d])
        wb, rb = own[: 3 * n], own[3 * n :]
        zr, new = r[d][: 2 * n], r[d][2 * n :]

        def step(state: Any, gates: Any) -> Any:
            (h,) = state
            both = gates[..., : 2 * n] + h @ zr.T + wb[: 2 * n] + rb[: 2 * n]
            z, reset = jnp.split(f(cells.clipped(both)), 2, axis=-1)
            if linear_before_reset:
                inner = reset * (h @ new.T + rb[2 * n :])
            else:
                inner = (reset * h) @ new.T + rb[2 * n :]
            candidate = g(cells.clipped(gates[..., 2 * n :] + inner + wb[2 * n :]))
            return ((1 - z) * candidate + z * h,)

        return step

    return run(x, w, sequence_lens, [initial_h], cells, prepare)


@operator("RNN")
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array = None,
    sequence_lens: Array = None,
    initial_h: Array = None,
    *,
    cells: Cells,
) -> Any:
    functions = _functions("RNN", cells)

    def prepare(d: int) -> Any:
        (f,) = functions[d]
        bias = 0 if b is None else b[d][: cells.hidden_size] + b[d][cells.hidden_size :]

        def step(state: Any, gates: Any) -> Any:
            return (f(cells.clipped(gates + state[0] @ r[d].T + bias)),)

        return step

    return run(x, w, sequence_lens, [initial_h], cells, prepare)


def _functions(kind: str, cells: Cells) -> list[list[Function]]:
    """The activation functions of each direction; those that take parameters get them in order."""
    default = _DEFAULTS[kind]
    count = 2 if cells.direction == "bidirectional" else 1
    chosen = list(cells.activations or default * count)
    alpha, beta = list(cells.activation_alpha or ()), list(cells.activation_beta or ())
    with_alpha = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
    with_beta = {"Affine", "ScaledTanh", "HardSigmoid"}
    functions = []
    for name in chosen:
        a = alpha.pop(0) if alpha and name in with_alpha else None
        b = beta.pop(0) if beta and name in with_beta else None
        functions.append(activation(name, a, b))
    size = len(default)
    return [functions[i * size : (i + 1) * size] for i in range(count)]
