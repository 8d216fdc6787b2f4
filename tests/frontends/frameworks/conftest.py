"""Models of modules, traced and run by XLA, against the modules themselves in evaluation mode."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "jax"

from jq.frontends.model import Model
from jq.frontends.tracing import trace
from tests.support import programs


@pytest.fixture
def same() -> Callable[..., Any]:
    """The program of a model, whose results on these inputs are the expected ones."""

    def check(model: Model, expected: Any, *inputs: Any) -> Any:
        program = trace(model)
        found = programs.run_xla(program, jax.tree.leaves(inputs))
        # The same ops in float32; only fusion may order a sum differently.
        for a, b in zip(found, jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=32 * 2.0**-23, atol=32 * 2.0**-23)
        return program

    return check
