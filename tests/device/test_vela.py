"""Exports for Ethos-U in Arm's own compiler: nothing stays on the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from tests.device.test_exporting import small

pytest.importorskip("ethosu", reason="Arm's compiler Vela is not installed")
pytest.importorskip("tosa_reference_model", reason="Arm's reference model is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")


def wide_table() -> jq.Model:
    """A function whose codes have 16 bits, of codes of 8: the last of a model."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((2, 8), np.float32),)
    params = {"w": rng.standard_normal((8, 8), np.float32)}
    return jq.Model(lambda p, x: jnp.tanh(x @ p["w"]), params, x, calibration=[x])


def tiled() -> jq.Model:
    """An input whose codes have 8 bits for a table, and 16 for the last maximum: tables have 256
    codes there. A tensor is repeated, which JAX writes in eight axes."""
    x = (np.random.default_rng(0).standard_normal((1, 4, 3, 2), np.float32),)

    def call(_: object, x: jnp.ndarray) -> jnp.ndarray:
        return jnp.maximum(x, jnp.tile(jnp.tanh(x[:, :1]), (1, 4, 1, 1)))

    return jq.Model(call, {}, x, calibration=[x])


@pytest.mark.parametrize("device", ["ethos-u55-256", "ethos-u65-512", "ethos-u85-256"])
@pytest.mark.parametrize("model", [small, wide_table, tiled])
def test_every_operator_runs_on_the_device(
    device: str, model: Callable[[], jq.Model], tmp_path: Path
) -> None:
    path = tmp_path / "m.tosa"
    found = jq.export(model(), path, target=device.rpartition("-")[0], verify=True)
    assert found["same"] == found["outputs"] > 0
    command = ["-m", "ethosu.vela", str(path), "--accelerator-config", device]
    said = subprocess.run(
        [sys.executable, *command, "--output-dir", str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    counted = re.search(r"CPU operators = (\d+).*NPU operators = (\d+)", said, re.S)
    assert counted is not None, said
    assert counted[1] == "0"
    assert int(counted[2]) > 0
