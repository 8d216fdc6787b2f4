"""What `--emit` writes is the program: another compiler gets all of it."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.backend.xla import XlaExecutable

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 64)).astype(np.float32)
MODEL = jq.Model(
    lambda p, x: jnp.tanh(x @ p["a"] + p["bias"]) @ p["b"],
    {
        "a": RNG.standard_normal((64, 40)).astype(np.float32),
        "b": RNG.standard_normal((40, 7)).astype(jnp.bfloat16),
        "bias": RNG.standard_normal(40).astype(np.float32),
    },
    (X,),
    calibration=[(X,)],
)


@pytest.fixture(scope="module", params=["int8-dynamic", "int8-static", "mxfp4-weight-only"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    chosen = {"min_elements": 1}
    compiled = jq.compile(MODEL, request.param, settings=chosen, emit=["float", "qdq", "integer"])
    return compiled, compiled.save(tmp_path_factory.mktemp("emit") / "out")


@pytest.mark.parametrize("level", ["float", "qdq", "integer"])
def test_an_emitted_module_is_whole(made: tuple[jq.CompiledModel, Path], level: str) -> None:
    compiled, path = made
    again = jq.trace(path / f"{level}.mlirbc").program
    (want,) = XlaExecutable(compiled.levels[level])(X)
    np.testing.assert_array_equal(XlaExecutable(again)(X)[0], want)
    assert (path / f"{level}.mlir").read_text().startswith("module")


def test_stored_weights_come_back_as_they_are(made: tuple[jq.CompiledModel, Path]) -> None:
    compiled, path = made
    again = jq.compile(path / "qdq.mlirbc", "float")
    stored = {w.name: w.format for w in compiled.audit().weights if w.format != "f32"}
    assert {w.name: w.format for w in again.audit().weights}.items() >= stored.items()


def test_the_target_level_is_text_alone(tmp_path: Path) -> None:
    path = jq.compile(MODEL, emit="target").save(tmp_path / "out")
    assert (path / "target.mlir").is_file()
    assert not (path / "target.mlirbc").exists()
    with pytest.raises(jq.UserError, match="a function has no body"):
        jq.trace(path / "target.mlir")
