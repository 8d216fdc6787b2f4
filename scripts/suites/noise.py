"""Noise that the rounding of a pipeline's formats may add to a function's results.

The function is run with errors put in where the pipeline may round: on every weight of two axes or
more, and on both operands of every product and convolution where activations are quantized. Each
element is off by half a step, the most that rounding can do, with a random sign; steps are those of
the coarsest granularity, one for a tensor. Rounding is off by half a step at most and by
step / sqrt(12) in the mean square: what a pipeline adds stays below the largest of `DRAWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DRAWS = 8
SIGNS, _PRIME = 1 << 14, 1009
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint")


@dataclass(frozen=True)
class Steps:
    """The codes that a pipeline rounds to.

    Attributes:
        weights: codes on each side of zero.
        activations: codes from the least to the largest number and zero; None leaves them alone.
    """

    weights: int
    activations: int | None = None


STEPS = {
    "int8-weight-only": Steps(127),
    "int4-weight-only": Steps(7),
    "int8-dynamic": Steps(127, 255),
    "int8-static": Steps(127, 255),
    "bf16": Steps(256, 256),  # half a step of the largest number
}


def power(fn: Callable[..., Any], weights: Any, inputs: Sequence[Any], steps: Steps) -> list[float]:
    """For each result: the sum of squares of what rounding adds, at most.

    Args:
        fn: `fn(weights, *inputs)`.
    """
    graph = jax.make_jaxpr(fn)(weights, *inputs)
    held, given = jax.tree.leaves(weights), jax.tree.leaves(inputs)

    def run(signs: Any) -> list[Any]:
        errors = Errors(signs)
        moved = [errors.of_weight(w, steps.weights) for w in held]
        return _evaluate(graph.jaxpr, graph.consts, [*moved, *given], errors, steps.activations)

    rng = np.random.default_rng(0)
    call = jax.jit(run, compiler_options=QUICK)
    exact = call(np.zeros(SIGNS, np.float32))
    worst = [0.0] * len(exact)
    for _ in range(DRAWS):
        moved = call(rng.choice(np.array([-1, 1], np.float32), SIGNS))
        for j, (a, b) in enumerate(zip(moved, exact, strict=True)):
            worst[j] = max(worst[j], difference_power(np.asarray(a), np.asarray(b)))
    return worst


def difference_power(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of squares of the difference, where both are finite."""
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.sum(np.abs((a - b)[finite]) ** 2))


@dataclass
class Errors:
    """Errors of half a step.

    Attributes:
        signs: -1 and 1 at random, or zeros for no errors; each tensor takes a part of them.
        start: where the next part begins.
    """

    signs: Any
    start: Any = 0

    def next_start(self) -> Any:
        self.start = (self.start + _PRIME) % SIGNS
        return self.start

    def of_weight(self, x: Any, codes: int) -> Any:
        if jnp.ndim(x) < 2 or not jnp.issubdtype(jnp.result_type(x), jnp.floating):
            return x
        return self._moved(x, jnp.max(jnp.abs(x), initial=0) / codes / 2)

    def of_activation(self, x: Any, codes: int) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return self._moved(x, (jnp.max(x, initial=0) - jnp.min(x, initial=0)) / codes / 2)

    def _moved(self, x: Any, half: Any) -> Any:
        x = jnp.asarray(x)
        places = (self.next_start() + np.arange(x.size)) % SIGNS
        signs = self.signs[places].reshape(x.shape)
        return x + (signs * half).astype(x.dtype)


def _evaluate(
    graph: Any, consts: Sequence[Any], args: Sequence[Any], errors: Errors, codes: int | None
) -> list[Any]:
    """A jaxpr's results, with errors on the operands of its products."""
    known = dict(zip([*graph.constvars, *graph.invars], [*consts, *args], strict=True))

    def value(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else known[atom]

    for eqn in graph.eqns:
        operands, name = [value(v) for v in eqn.invars], eqn.primitive.name
        if codes is not None and name in PRODUCTS:
            operands = [errors.of_activation(jnp.asarray(x), codes) for x in operands]
        if name in _CALLS:
            inner = eqn.params.get("call_jaxpr") or eqn.params["jaxpr"]
            found = _evaluate(*_opened(inner), operands, errors, codes)
        elif name == "scan":
            found = _scan(eqn, operands, errors, codes)
        else:
            params = eqn.primitive.get_bind_params(eqn.params)
            result = eqn.primitive.bind(*operands, **params)
            found = result if eqn.primitive.multiple_results else [result]
        known.update(zip(eqn.outvars, found, strict=True))
    return [value(v) for v in graph.outvars]


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr itself, and the constants that it is closed over."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def _scan(eqn: Any, operands: Sequence[Any], errors: Errors, codes: int | None) -> list[Any]:
    params, (inner, held) = eqn.params, _opened(eqn.params["jaxpr"])
    # What is scanned or stacked has one axis more outside; the names of their numbers differ
    # between versions of JAX.
    carried = sum(map(_of_one_rank, eqn.outvars, inner.outvars))
    constants = sum(map(_of_one_rank, eqn.invars, inner.invars)) - carried
    consts, start = operands[:constants], operands[constants : constants + carried]
    begin = errors.next_start()

    def body(state: Any, xs: Any) -> Any:
        i, carry = state
        fresh = Errors(errors.signs, (begin + i * _PRIME * _PRIME) % SIGNS)
        found = _evaluate(inner, held, [*consts, *carry, *xs], fresh, codes)
        return (i + 1, found[:carried]), found[carried:]

    (_, last), stacked = jax.lax.scan(
        body,
        (0, list(start)),
        list(operands[constants + carried :]),
        length=params["length"],
        reverse=params["reverse"],
    )
    return [*last, *stacked]


def _of_one_rank(outside: Any, inside: Any) -> bool:
    return bool(len(outside.aval.shape) == len(inside.aval.shape))
