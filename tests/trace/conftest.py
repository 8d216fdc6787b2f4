"""Runs a traced program on XLA CPU, which shares nothing with our own backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib import _jax, xla_client

from jq.ir import Program
from jq.model import Model
from jq.trace import trace


def _run_xla(program: Program, leaves: list[Any]) -> list[np.ndarray]:
    """Flat outputs of a program for flat inputs."""
    device = jax.devices("cpu")[0]
    compiled = device.client.compile_and_load(
        program.bytecode(), _jax.DeviceList((device,)), xla_client.CompileOptions()
    )
    arguments = [jax.device_put(np.asarray(a), device) for a in leaves]
    arguments += [jax.device_put(w, device) for w in program.weights.values()]
    shards = compiled.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [np.asarray(shard[0]) for shard in shards]


@pytest.fixture
def run_xla() -> Callable[[Program, list[Any]], list[np.ndarray]]:
    return _run_xla


@pytest.fixture
def check() -> Callable[..., Program]:
    """Traces a model, runs it on its example inputs and compares with `jax.jit(fn)`."""

    def check_model(fn: Any, params: Any, *inputs: Any, **fields: Any) -> Program:
        program = trace(Model(fn, params, inputs, **fields))
        got = _run_xla(program, jax.tree.leaves(inputs))
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
