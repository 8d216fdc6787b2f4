"""`.tosa` files as models: the bits of Arm's reference model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.cli.app import main
from jq.device.forms.tosa import run
from jq.frontends.tosa.schema import OPERATORS, SCHEMA
from tests.support.programs import evaluated

pytestmark = pytest.mark.usefixtures("quick_xla")
NHWC = ("NHWC", "HWIO", "NHWC")


def _layers(p, x):
    """A convolution by a stride and a depthwise one, a pool, a residual sum and its relu, a resize
    by a transposed convolution, a table, moves, and softmax."""
    x = jax.lax.conv_general_dilated(x, p["a"], (2, 2), "SAME", dimension_numbers=NHWC)
    y = jax.lax.conv_general_dilated(
        x, p["b"], (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=4
    )
    x = jax.nn.relu(jnp.clip(x + y, -1, 1))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
    x = jax.lax.conv_transpose(x, p["c"], (2, 2), "SAME", dimension_numbers=NHWC)
    x = jnp.concatenate([jnp.tanh(x), x[:, ::-1]], 3)[:, 1:].swapaxes(1, 2) * 0.5
    x = jnp.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0))).mean((1, 2))
    return jax.nn.softmax(30 * (x @ p["d"]))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 3, 3, 4), "b": (3, 3, 1, 4), "c": (3, 3, 4, 4), "d": (8, 5)}
    params = {k: rng.standard_normal(s, np.float32) / 3 for k, s in shapes.items()}
    samples = [(rng.standard_normal((1, 8, 8, 3), np.float32),) for _ in range(2)]
    path = tmp_path_factory.mktemp("tosa") / "m.tosa"
    model = jq.Model(_layers, params, samples[0], calibration=samples)
    jq.export(model, path, target="npu-int8", settings={"recovery": False})
    return path


def test_the_bits_of_the_reference(file: Path) -> None:
    pytest.importorskip("tosa_reference_model", reason="Arm's reference model is not installed")
    program, rng = jq.trace(file).program, np.random.default_rng(1)
    for ends in ((-128, 127), (-128, -128), (127, 127)):
        x = rng.integers(*ends, (1, 8, 8, 3), np.int8, endpoint=True)
        (got,), ((wanted,),) = evaluated(program, x), run(file.read_bytes(), [[x]])
        assert np.array_equal(got, wanted)
        assert got.dtype == wanted.dtype


def test_conditions_and_products_of_16_bits(tmp_path: Path) -> None:
    """Gates whose products are of 16 bits, and a choice by several comparisons."""
    pytest.importorskip("tosa_reference_model", reason="Arm's reference model is not installed")
    rng, path = np.random.default_rng(3), tmp_path / "m.tosa"

    def layers(p: Any, x: Any) -> Any:
        h, g = x @ p["a"], jax.nn.sigmoid(x @ p["b"])
        h = (1 - g) * jnp.tanh(h) + g * (h @ p["b"])
        return jnp.where(((h >= 0.1) & (x < 0.5)) | ~(x != 0), h @ p["a"], x / 2) @ p["b"]

    params = {k: rng.standard_normal((8, 8), np.float32) / 3 for k in "ab"}
    samples = [(rng.standard_normal((4, 8), np.float32),) for _ in range(2)]
    model = jq.Model(layers, params, samples[0], calibration=samples)
    given = jq.export(model, path, target="npu-int8", settings={"recovery": False})["inputs"]
    (kind,) = (np.dtype(t["dtype"]) for t in given)
    x = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, (4, 8), kind)
    (got,), ((wanted,),) = evaluated(jq.trace(path).program, x), run(path.read_bytes(), [[x]])
    assert np.array_equal(got, wanted)


def test_the_command_compiles_it(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compile", str(file), "-p", "float", "-o", str(out), "-q"]) == 0
    x = np.random.default_rng(2).integers(-128, 127, (1, 8, 8, 3), np.int8)
    (wanted,) = evaluated(jq.trace(file).program, x)
    (got,) = jax.tree.leaves(jq.load(out)(x))
    assert np.array_equal(got, wanted)


def test_what_is_not_read_is_named(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.tosa"
    graph = SCHEMA.decode("Graph", file.read_bytes())
    operators = graph["regions"][0]["blocks"][0]["operators"]
    operators[-1]["op"], operators[-1]["attribute"] = OPERATORS.index("FFT2D") + 1, ("FFT2D", {})
    path.write_bytes(SCHEMA.encode("Graph", graph))
    with pytest.raises(jq.UserError, match="FFT2D: not read"):
        jq.trace(path)
    path.write_bytes(file.read_bytes()[:-400])
    with pytest.raises(jq.UserError, match="damaged"):
        jq.trace(path)
