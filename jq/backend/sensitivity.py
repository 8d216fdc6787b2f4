"""How much the rows of intermediate results matter to a program's output, by differentiation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.backend.evaluate import run
from jq.ir import Program, ir


class Sensitivity:
    """How much each row of some values moves the program's output.

    For a random direction v of the output (signs), g = d<v, output> / d(value); the mean of
    g^2 over v is the squared gain from that element to the output. Averaged over the axes
    given, which leaves one number a row: rows that never reach the output (padding) get 0.
    """

    def __init__(
        self, program: Program, values: Mapping[str, tuple[ir.Value, Sequence[int]]]
    ) -> None:
        """
        Args:
            values: results of ops of the outermost block by a name, with the axes to average over.

        Raises:
            Unsupported: the program holds an op that has no gradient here.
        """
        self.program = program
        self._names: dict[Any, list[str]] = {}
        for name, (value, _) in values.items():
            self._names.setdefault(value, []).append(name)
        self.axes = {name: tuple(axes) for name, (_, axes) in values.items()}
        self._weights = [jnp.asarray(w) for w in program.weights.values()]
        self._shapes: dict[str, Any] = {}
        self._step = jax.jit(jax.grad(self._projected))
        blank = [jnp.zeros(i.shape, i.dtype) for i in program.inputs]
        jax.eval_shape(lambda x: self._forward({}, x, self._weights), blank)
        self._zeros = {k: jnp.zeros(s.shape, s.dtype) for k, s in self._shapes.items()}

    def __call__(
        self, inputs: Sequence[np.ndarray], seed: int, rounds: int
    ) -> dict[str, np.ndarray]:
        """Mean squared gradient by op, in the shape of the result without the averaged axes."""
        total: dict[str, Any] = {}
        given = [jnp.asarray(x) for x in inputs]
        for r in range(rounds):
            key = jax.random.key(seed * rounds + r)
            gradients = self._step(self._zeros, given, self._weights, key)
            for names in self._names.values():
                square = jnp.square(gradients[names[0]])
                for k in names:
                    total[k] = total.get(k, 0.0) + square.mean(self.axes[k]) / rounds
        return {k: np.asarray(v) for k, v in total.items()}

    def _forward(self, taps: Mapping[str, Any], inputs: Any, weights: Any) -> list[Any]:
        def edit(op: Any, value: Any) -> Any:
            names = self._names.get(op.operation.results[0])
            if not names:
                return value
            self._shapes[names[0]] = value
            return value + taps[names[0]] if names[0] in taps else value

        return run(self.program, inputs, weights, edit)

    def _projected(self, taps: Any, inputs: Any, weights: Any, key: Any) -> Any:
        outputs = self._forward(taps, inputs, weights)[: len(self.program.outputs)]
        total = jnp.zeros(())
        for i, y in enumerate(outputs):
            if jnp.issubdtype(y.dtype, jnp.floating):
                signs = jax.random.rademacher(jax.random.fold_in(key, i), y.shape, jnp.float32)
                total = total + (y.astype(jnp.float32) * signs).sum()
        return total
