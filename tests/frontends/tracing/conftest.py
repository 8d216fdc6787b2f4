"""Traced programs against `jax.jit` of the model's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing import trace
from jq.ir import Program
from tests.support import programs


@pytest.fixture
def run_xla() -> Callable[[Program, list[Any]], list[np.ndarray]]:
    return programs.run_xla


@pytest.fixture
def check() -> Callable[..., Program]:
    """Traces a model, runs it on its example inputs and compares with `jax.jit(fn)`."""

    def check_model(fn: Any, params: Any, *inputs: Any, **fields: Any) -> Program:
        program = trace(Model(fn, params, inputs, **fields))
        pairs = zip(jax.tree.leaves(inputs), program.inputs, strict=True)
        arrays = [x if hasattr(x, "dtype") else np.asarray(x, spec.dtype) for x, spec in pairs]
        got = programs.run_xla(program, arrays)
        result = jax.tree.unflatten(program.out_tree, got)
        expected = jax.jit(fn)(params, *inputs)
        assert jax.tree.structure(result) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            assert a.dtype == b.dtype
            step = float(jax.numpy.finfo(b.dtype).eps) if a.dtype.kind in "fV" else 0
            # The same ops in the same types; only fusion may order a sum differently.
            np.testing.assert_allclose(
                a.astype(np.float64), np.asarray(b, np.float64), rtol=32 * step, atol=32 * step
            )
        return program

    return check_model
