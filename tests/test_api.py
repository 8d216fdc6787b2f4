"""Arguments that users hand in from Python, and the messages where they do not fit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.base.tree import describe, flatten, unflatten
from jq.passes.pipeline import load_pipeline
from jq.passes.pipeline.file import as_overrides, as_rules

X = np.ones((2, 8), np.float32)
W = np.eye(8, dtype=np.float32)


def model(fn: Any = lambda p, x: x @ p["w"]) -> jq.Model:
    return jq.Model(fn, {"w": W}, (X,))


@pytest.mark.parametrize(
    ("thing", "message"),
    [(None, "a NoneType is no model; give jq.Model"), (lambda x: x, "a function is no model")],
)
def test_what_is_no_model(thing: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        jq.compile(thing)


def test_a_model_of_the_wrong_parts() -> None:
    with pytest.raises(UserError, match=r"is of type ndarray, not a tuple; one .* \(x,\)"):
        jq.Model(lambda p, x: x, {}, X)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="fn is of type int, not a function"):
        jq.Model(3, {}, (X,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0] * 8, [1.0]], "input 'arg0' is no array of float32"),
        ("abc", "input 'arg0' is no array of float32"),
        (np.ones((2, 8), np.int32), "has type int32, the model takes float32"),
        (X[:1], r"has shape \(1, 8\)"),
    ],
)
def test_inputs_that_do_not_fit(value: Any, message: str) -> None:
    source = jq.trace(model())
    with pytest.raises(UserError, match=message):
        source.calls([(value,)])
    with pytest.raises(UserError, match=r"come as a tuple, one entry an input, not as ndarray"):
        source.calls([X])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jq.plan(model(), ranges=3), "ranges is of type int; give Ranges or a string or a"),
        (
            lambda: jq.plan(model(), allow_dynamic="no"),
            "allow_dynamic is of type str; give True or",
        ),
        (lambda: jq.plan(model(), progress=1), "progress is of type int; give a function or None"),
        (lambda: jq.compile(model(), iree_flags="--x"), "iree_flags is of type str; give list or"),
        (lambda: jq.compile(model(), emit=3), "emit is of type int; give a string or a list or"),
        (lambda: jq.calibrate(model(), shard=2), "shard is of type int; give a string"),
        (lambda: jq.CompiledModel.save(*[None] * 2), "a path is of type NoneType; give a string"),
        (lambda: jq.trace(model(), sizes=4), "sizes is of type int; give a dict or None"),
        (lambda: jq.load("out", verify=3), "verify is of type int; give a string or a path or"),
        (lambda: jq.load("out", threads="x"), "threads is of type str; give "),
        (lambda: jq.bench("out", seconds=None), "seconds is of type NoneType; give "),
        (lambda: jq.bench("out", threads=W), "threads is of type ndarray; give "),
        (lambda: jq.bench("out", inputs=3), "inputs is of type int; give a string or a path or"),
        (lambda: jq.compare(model(), 3), "compiled is of type int; give CompiledModel or a"),
        (lambda: jq.compare(model(), metric=3), "metric is of type int; give a string or a func"),
        (lambda: jq.compare(model(), metric=[W]), "a metric is of type ndarray; give a string"),
        (lambda: jq.compare(model(), layers="x"), "layers is of type str; give True or False"),
        (lambda: jq.search(model(), "cosine>=0.9", samples="x"), "samples is of type str; give "),
        (lambda: jq.search(model(), "cosine>=0.9", cost=3), "cost is of type int; give a string"),
        (lambda: jq.search(model(), "cosine>=0.9", state=3), "state is of type int; give a string"),
        (lambda: jq.search(model(), "cosine>=0.9", candidates=3), "candidates is of type int; "),
        (lambda: jq.load(None), "a path is of type NoneType; give a string or a path"),
        (lambda: jq.vectors("out", "a\0b"), "no path has a zero byte: 'a.x00b'"),
    ],
)
def test_arguments_of_other_types_are_refused_at_once(call: Any, message: str) -> None:
    """They would be taken for something else, or fail far inside."""
    with pytest.raises(UserError, match=message):
        call()


def test_ranges_of_another_model() -> None:
    other = jq.Model(lambda p, x: jnp.tanh(x) @ p["other"], {"other": W}, (X,), calibration=[(X,)])
    with pytest.raises(UserError, match="the ranges are of another model, or of other weights"):
        jq.plan(model(), pipeline="int8-static", ranges=jq.calibrate(other))
    assert jq.plan(model(), pipeline="int8-static", ranges=jq.calibrate(model(), [(X,)])).has_static


def test_one_setting_and_one_rule_need_no_list() -> None:
    assert as_overrides("weights.format=int4") == {"weights.format": "int4"}
    assert as_overrides({"weights": {"format": "int4"}}) == {"weights.format": "int4"}
    assert as_rules("w: float") == as_rules(["w: float"])
    (op,) = jq.plan(model(), rules="w: float").ops
    assert op.decision == "float"


@pytest.mark.parametrize("wrong", [3, [("w", {"weights.format": "int4"})], [None]])
def test_rules_and_settings_of_another_type(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"a rule is of type .*; write 'PATTERN: key=value, ...'"):
        jq.plan(model(), rules=wrong)
    with pytest.raises(UserError, match=r"a setting is of type .*; write {'KEY': VALUE}"):
        jq.plan(model(), settings=wrong)


def test_pipelines_and_targets_are_paths_as_well(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('base = "int8-weight-only"\n[settings]\nmin_elements = 1\n')
    (tmp_path / "t.toml").write_text("[device]\nfloat_products = false\n")
    assert jq.plan(model(), pipeline=tmp_path / "p.toml").ops[0].decision == "weight-only"
    assert jq.plan(model(), target=tmp_path / "t.toml").ops[0].decision == "integer"
    (odd := tmp_path / "\udcff.toml").write_text((tmp_path / "p.toml").read_text())
    jq.compile(model(), pipeline=odd).save(tmp_path / "out")  # its manifest is UTF-8
    with pytest.raises(UserError, match="unknown target '3'"):
        jq.plan(model(), target=3)
    with pytest.raises(UserError, match="unknown pipeline '3'"):
        jq.plan(model(), pipeline=3)


def test_dicts_with_keys_that_json_has_not_are_tuples() -> None:
    assert unflatten(describe({(1, 2): 0}), "x") == ("x",)
    structure = describe({"b": 0, 3: [1]})
    assert unflatten(structure, "xy") == {"b": "x", 3: ["y"]}
    assert flatten(structure, {"b": 1, 3: [2]}) == [1, 2]


@jax.tree_util.register_dataclass
@dataclass
class Batch:
    """An input of a class of the user's own."""

    x: Any
    mask: Any


def test_containers_of_the_users_own() -> None:
    def fn(p: Any, batch: Batch, scale: Any) -> Any:
        return {"y": (batch.x @ p["w"]) * scale[0], "batch": batch}

    batch, scale = Batch(X, np.arange(2, dtype=np.int32)), (np.float32(3),)
    given = jq.Model(fn, {"w": W}, (batch, scale), calibration=[(batch, scale)])
    compiled = jq.compile(given, "float")
    for first in (batch, (X, np.arange(2, dtype=np.int32))):  # as a process without the class gives
        result = compiled(first, scale)
        np.testing.assert_allclose(result["y"], X * 3)
        np.testing.assert_array_equal(result["batch"].mask, [0, 1])
    with pytest.raises(UserError, match="/0 must be 2 arrays, not 1"):
        compiled(X, scale)
    assert jq.compare(given, compiled).outputs[2].name == "y"


def test_what_stands_in_a_prompt_is_short() -> None:
    compiled = jq.compile(model(), "float")
    assert repr(compiled).startswith("<CompiledModel float for llvm-cpu, ")
    assert repr(compiled).endswith(": (arg0 float32[2,8]) -> (out0 float32[2,8])>")
    assert "Program of 1 weights" in repr(jq.trace(model()))
    assert re.fullmatch(
        r"<Model \w+: \(float32\[.*\]\), 1 arrays of parameters, .*B>", repr(model())
    )
    assert "arg0" in model()._repr_html_() and "sets: " in model()._repr_html_()
    decided = jq.plan(model(), pipeline="int8-dynamic")
    assert str(decided).startswith("name") and decided.ops[0].name in decided._repr_html_()
    assert "[1., " not in repr(jq.trace(model()))
    seen = jq.calibrate(model(), [(X,)])
    assert repr(seen) == "<Ranges of 1 tensors, 1 samples, percentile>"


def test_rules_may_be_a_dict() -> None:
    assert as_rules({"a/*": "float", "b": "weights.format=int4"}) == as_rules(
        ["a/*: float", "b: weights.format=int4"]
    )


def test_a_setting_without_effect_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"no effect .*per-channel; give weights.granularity"):
        load_pipeline("int8-dynamic", {"weights.block_size": 16})
    load_pipeline("int4-weight-only", {"weights.block_size": 16})
    blocks = {"weights.block_size": 16, "weights.granularity": "per-block"}
    load_pipeline("int8-weight-only", blocks)
    rule = as_rules("head: weights.granularity=per-block")
    load_pipeline("int8-weight-only", {"weights.block_size": 16}, tuple(rule))


def test_an_artifact_is_a_folder_or_what_was_loaded(tmp_path: Path) -> None:
    given = model()
    compiled = jq.compile(given, "float")
    folder = compiled.save(tmp_path / "out")
    assert jq.compare(given, str(folder)).outputs[0].max_abs_error == 0
    assert jq.bench(jq.load(folder), seconds=0.1)["runs"] > 0
    page = jq.report(given, jq.load(folder), tmp_path / "page.html", samples=1, seconds=0.01)
    assert page.stat().st_size
    for call in (jq.bench, lambda c: jq.report(given, c, "p"), lambda c: jq.vectors(c, "v")):
        with pytest.raises(UserError, match=r"needs an artifact in a folder; save it first"):
            call(compiled)  # type: ignore[operator]


def test_a_compiled_model_is_called_outside_of_jax() -> None:
    compiled = jq.compile(model(), "float")
    for transform in (jax.jit, jax.vmap):
        with pytest.raises(UserError, match=r"cannot be called inside of jax.jit, jax.vmap"):
            transform(compiled)(X)


def test_what_is_compared_is_read_before_anything_is_compiled(monkeypatch) -> None:
    monkeypatch.setattr("jq.api.compiling.compile", lambda *_, **__: pytest.fail("compiled first"))
    with pytest.raises(UserError, match=r"shape \(2, 9\)"):
        jq.compare(model(), None, [(np.ones((2, 9), np.float32),)])


def test_sums_of_nothing_are_zero() -> None:
    empty = jq.Model(lambda p, x: x @ p["w"] + 1, {"w": np.zeros((0, 8), np.float32)}, (X[:, :0],))
    np.testing.assert_array_equal(jq.compile(empty)(X[:, :0]), np.ones((2, 8)))
    rows = X[:0]
    compiled = jq.compile(jq.Model(lambda p, x: x @ p["w"], {"w": W}, (rows,)))
    assert compiled(rows).shape == (0, 8)
    assert (
        jq.compare(jq.Model(lambda p, x: x @ p["w"], {"w": W}, (rows,)), compiled)
        .outputs[0]
        .sqnr_db
        == math.inf
    )
