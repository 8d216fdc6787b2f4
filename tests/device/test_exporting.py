"""`jaxq export`: files whose own reference gives the bits of the integer program."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import jq
from jq.cli.app import main

pytestmark = pytest.mark.usefixtures("quick_xla")


def small() -> jq.Model:
    """A convolution with padding that its stride does not divide, a pool, and a product."""
    rng = np.random.default_rng(0)

    def apply(params, x):
        x = jax.lax.conv_general_dilated(
            x, params["conv"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return {"scores": x.reshape(x.shape[0], -1) @ params["dense"]}

    params = {
        "conv": rng.standard_normal((3, 3, 3, 8), np.float32) / 5,
        "dense": rng.standard_normal((32, 10), np.float32) / 6,
    }
    samples = [(rng.random((1, 8, 8, 3), np.float32),) for _ in range(3)]
    return jq.Model(apply, params, samples[0], calibration=samples)


@pytest.fixture(scope="module")
def compiled() -> jq.CompiledModel:
    return jq.compile(small(), "int8-static-integer-only", "npu-int8")


@pytest.fixture
def reference() -> None:
    pytest.importorskip("tosa_reference_model", reason="Arm's reference model is not installed")


@pytest.mark.usefixtures("reference")
def test_a_compiled_model_has_the_same_bits(compiled: jq.CompiledModel, tmp_path: Path) -> None:
    found = jq.export(compiled, tmp_path / "m.tosa", verify=True)
    assert found["outputs"] == found["same"] == 10 * 4  # random twice, and both ends
    assert found["operators"]["conv2d"] == 2
    (x,), (y,) = found["inputs"], found["results"]
    assert (x["name"], x["dtype"], x["shape"]) == ("arg0", "int8", [1, 8, 8, 3])
    assert x["scale"] > 0
    assert (y["name"], y["shape"]) == ("scores", [1, 10])


@pytest.mark.usefixtures("reference")
def test_an_artifact_gives_the_same_file(compiled: jq.CompiledModel, tmp_path: Path) -> None:
    folder = replace(compiled, emit=("integer",)).save(tmp_path / "out")
    files = [tmp_path / "of_the_model.tosa", tmp_path / "of_the_artifact.tosa"]
    jq.export(compiled, files[0])
    arguments = ["export", str(folder), "-o", str(files[1])]
    assert main([*arguments, "--target", "ethos-u55", "-q"]) == 2
    assert main([*arguments, "--verify", "-q"]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    (folder / "integer.marked.mlirbc").write_bytes(b"ML")
    with pytest.raises(jq.UserError, match="damaged|changed"):
        jq.export(folder, tmp_path / "m.tosa")


def test_an_artifact_without_its_integers(compiled: jq.CompiledModel, tmp_path: Path) -> None:
    folder = compiled.save(tmp_path / "out")
    with pytest.raises(jq.UserError, match="holds no") as error:
        jq.export(folder, tmp_path / "m.tosa")
    assert "--emit integer" in str(error.value)


@pytest.mark.usefixtures("reference")
def test_the_command_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "any"
    model = f"{__file__}:small"
    assert main(["export", model, "-o", str(path), "--to", "tosa", "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["form"] == "tosa"
    assert found["outputs"] == found["same"] == 10 * 7
    assert path.read_bytes()[4:8] == b"TOSA"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "m.unknown"}, "no form has this suffix"),
        ({"form": "tosaa"}, "unknown form"),
        ({"form": 3}, "unknown form"),
        ({"form": "tflite"}, "this suffix is of the form tosa"),
        ({"form": "tosa", "path": "m.tosa.mlir"}, "this suffix is of the form tosa-mlir"),
        ({"ends": "int9"}, "unknown ends"),
        ({"ends": "float"}, "no floats"),
        ({"settings": {"weights.format": "int4"}}, "already"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: dict[str, object], said: str, compiled: jq.CompiledModel, tmp_path: Path
) -> None:
    given = {"path": "m.tosa", **arguments}
    given["path"] = tmp_path / str(given["path"])
    with pytest.raises(jq.UserError, match=said):
        jq.export(compiled, **given)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("reference")
def test_an_input_without_a_form_is_named(tmp_path: Path) -> None:
    """A float that nothing reads: TOSA's integer profile has none."""
    w, inputs = np.eye(4, dtype=np.float32), (np.ones((2, 4), np.float32),) * 2
    model = jq.Model(lambda p, x, unused: x @ p, w, inputs, calibration=[inputs])
    with pytest.raises(jq.UserError, match=r"arg1: float32 has no form in TOSA.*cut the model"):
        jq.export(model, tmp_path / "m.tosa")


def test_an_input_that_is_quantized_in_two_ways(tmp_path: Path) -> None:
    """To 16 bits for a residual sum, and to 8 for a product: the file takes the first."""
    rng = np.random.default_rng(0)
    samples = [(rng.standard_normal((4, 8), np.float32),) for _ in range(3)]
    params = {"w": rng.standard_normal((8, 8), np.float32) / 3}
    model = jq.Model(lambda p, x: x + x @ p["w"], params, samples[0], calibration=samples)
    found = jq.export(model, tmp_path / "m.tosa", verify=True)
    assert found["same"] == found["outputs"] > 0
    assert found["inputs"][0]["dtype"] == "int16"
    assert found["operators"]["table"] == 1


def test_outputs_that_no_input_reaches(tmp_path: Path) -> None:
    """A constant of integers is written; of floats it has no codes, and nothing has none."""
    sample = (np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8),)

    def exported(f: Callable[..., object], *sample: np.ndarray) -> jq.Export:
        model = jq.Model(f, {"w": np.eye(8, 4, dtype=np.float32)}, sample, calibration=[sample])
        return jq.export(model, tmp_path / "m.tosa", verify=True)

    found = exported(lambda p, x: (x @ p["w"], *[np.arange(4, dtype=np.int32)] * 2), *sample)
    assert found["same"] == found["outputs"] == 5 * (8 + 4 + 4)
    with pytest.raises(jq.UserError, match=r"a constant, of floats.*--ends float"):
        exported(lambda p, x: (x @ p["w"], p["w"]), *sample)
    with pytest.raises(jq.UserError, match="arg0 has no elements"):
        exported(lambda p, x: x @ p["w"], sample[0][:0])
