"""One artifact of several sizes: the inputs choose, weights are stored once.

The oracle is XLA, of the program at each size; floats are sums of 64 products.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jq
from jq.artifact.programs import SharedWeights
from jq.base import npz
from jq.base.errors import UserError
from jq.cli.options import sized
from jq.frontends.tracing.dynamic import each_size
from jq.ir.oracle.xla import XlaExecutable

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(64, 96)).astype(np.float32), "b": np.ones(96, np.float32)}
SOURCE = """
import jax, jax.numpy as jnp, numpy as np, jq
from jax import export
rng = np.random.default_rng(0)
params = {"w": rng.normal(size=(64, 96)).astype(np.float32), "b": np.ones(96, np.float32)}
(b,) = export.symbolic_shape("b")
def model():
    x = jax.ShapeDtypeStruct((b, 64), jnp.float32)
    return jq.Model(lambda p, x: {"y": jax.nn.relu(x @ p["w"] + p["b"])}, params, (x,))
"""


def model() -> jq.Model:
    (b,) = export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((b, 64), jnp.float32)
    return jq.Model(lambda p, x: {"y": jax.nn.relu(x @ p["w"] + p["b"])}, PARAMS, (x,))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = jq.compile(model(), "int8-weight-only", sizes={"b": [8, 16]})
    return compiled.save(tmp_path_factory.mktemp("sizes") / "out")


@pytest.mark.parametrize("size", [8, 16])
def test_the_inputs_choose_the_program(artifact: Path, size: int) -> None:
    loaded, x = jq.load(artifact), RNG.normal(size=(size, 64)).astype(np.float32)
    source = jq.trace(model(), sizes={"b": size})
    program = jq.rewrite(source, pipeline="int8-weight-only")["integer"]
    (expected,) = XlaExecutable(program)(x)
    for y in (loaded(x)["y"], loaded.call_flat([x])[0]):
        assert y.shape == (size, 96)
        np.testing.assert_allclose(y, expected, rtol=0, atol=64 * 2e-7 * np.abs(expected).max())


def test_weights_are_stored_once_and_sizes_are_listed(artifact: Path) -> None:
    loaded = jq.load(artifact)
    assert [one.inputs[0].shape for one in loaded.sizes] == [(8, 64), (16, 64)]
    codes = [p for p in loaded.manifest.parameters.values() if np.prod(p.shape) >= 64 * 96]
    assert len(codes) == 1
    audit = loaded.audit()
    assert audit.verified
    assert [row["size"] for row in audit.to_dict()["sizes"]] == ["b=8", "b=16"]
    assert "sizes: b=8 " in audit.summary()


def test_other_shapes_are_refused_with_those_there_are(artifact: Path) -> None:
    with pytest.raises(UserError, match=r"shapes \(3, 64\)") as caught:
        jq.load(artifact)(np.zeros((3, 64), np.float32))
    assert "(8, 64); (16, 64)" in str(caught.value.hint)


def test_a_manifest_whose_sizes_have_no_programs_is_refused(artifact: Path, tmp_path: Path) -> None:
    content = json.loads((artifact / "manifest.json").read_text())
    content["programs"][1]["variant"] = 5
    for path in artifact.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="programs of other sizes"):
        jq.load(tmp_path)


def test_only_compile_takes_several() -> None:
    with pytest.raises(UserError, match="several sizes"):
        jq.plan(jq.trace(model(), sizes={"b": [8, 16]}))
    with pytest.raises(UserError, match="numbers that differ|is \\[8, 8\\]"):
        jq.compile(model(), sizes={"b": [8, 8]})
    with pytest.raises(UserError, match="traced already"):
        jq.compile(jq.trace(model(), sizes={"b": 8}), sizes={"b": 8})


def test_a_command_line_gives_sizes_by_comma(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    source = jq.trace(sized(f"{tmp_path / 'm.py'}:model", {"sizes": ["b=8,16"], "values": None}))
    shapes = [one.program.inputs[0].shape for one in (source, *source.others)]
    assert shapes == [(8, 64), (16, 64)]


def test_files_of_inputs_choose_too(artifact: Path, tmp_path: Path) -> None:
    x = RNG.normal(size=(16, 64)).astype(np.float32)
    np.savez(tmp_path / "in.npz", arg0=x)
    several = [one.inputs for one in jq.load(artifact).sizes]
    np.testing.assert_array_equal(npz.read_any(tmp_path / "in.npz", several)[0], x)
    np.savez(tmp_path / "in.npz", arg0=x[:3])
    with pytest.raises(UserError, match="has shape"):
        npz.read_any(tmp_path / "in.npz", several)


def test_every_combination_is_a_size() -> None:
    assert each_size({"a": ["1", 2], "b": 3}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    assert each_size({"x": ["1", "2"]}, {"x"}) == [{"x": ["1", "2"]}]
    with pytest.raises(UserError, match="more than 16"):
        each_size({"a": list(range(1, 18))})


def test_what_differs_is_stored_by_program_and_found_again() -> None:
    weights = SharedWeights(lambda name, array: name)
    arrays = [np.zeros(2, np.int8), np.ones(2, np.int8), np.ones(2, np.int8)]
    keys = []
    for i, array in enumerate(arrays):
        keys.append(weights.key_of(f"t@{i}")("w", array))
        weights.add({keys[-1]: array})
    assert keys == ["w", "w@t@1", "w@t@1"]
