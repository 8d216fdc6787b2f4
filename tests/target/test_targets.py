"""Targets as data: what a device lacks is never planned, and it is said what to ask for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import jq
from tests.support.programs import evaluated
from tests.support.steps import rounded_product

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 48)).astype(np.float32)
X = RNG.standard_normal((4, 64)).astype(np.float32)
SCHEMES = ("symmetric", "asymmetric")


@pytest.fixture
def model():
    return jq.Model(_two, {"a": {"kernel": W}, "b": {"kernel": W.T.copy()}}, (X,))


def _two(p, x):
    return (x @ p["a"]["kernel"]) @ p["b"]["kernel"]


def rows(model, **options):
    return jq.plan(model, **options).to_dict()["ops"]


@pytest.mark.parametrize(("weights", "activations"), list(itertools.product(SCHEMES, SCHEMES)))
def test_all_pairs_of_schemes_are_integer_and_near_float(model, weights, activations):
    settings = {"weights.scheme": weights, "activations.scheme": activations}
    assert [r["weights"].split()[-1] for r in rows(model, settings=settings)] == [weights] * 2
    program = jq.rewrite(model, settings=settings)["integer"]
    (got,) = evaluated(program, X)
    between, error = rounded_product(X, 0.0, W)
    want, bound = rounded_product(between, error, W.T)
    dots = [line for line in program.text().splitlines() if "stablehlo.dot_general" in line]
    assert len(dots) == 2 and all(line.count("xi8>") == 2 for line in dots)
    assert (np.abs(got - want) <= bound).all()
    if weights != activations:  # the scheme is no mere label
        other = jq.rewrite(model, settings={"weights.scheme": activations})["integer"]
        assert not np.array_equal(evaluated(other, X)[0], got)


def test_the_nearest_is_chosen_where_nothing_was_asked_for(model):
    for row in rows(model, target="npu-per-tensor"):
        assert row["decision"] == "integer"
        assert row["weights"] == "int8 per-tensor symmetric"
        assert row["activations"] == "int8 per-tensor asymmetric"
        assert "has no per-channel" in row["reason"] and "has no per-token" in row["reason"]


def test_a_format_without_the_schemes_of_the_pipeline(model):
    for row in rows(model, pipeline="int4-weight-only", settings=["weights.format=float8_e4m3fn"]):
        assert (
            row["decision"] == "weight-only" and "float8_e4m3fn has no asymmetric" in row["reason"]
        )
    asked = ["weights.format=float8_e4m3fn", "weights.scheme=asymmetric"]
    for row in rows(model, pipeline="int4-weight-only", settings=asked):
        assert row["decision"] == "float" and "scheme" in row["reason"]


@pytest.mark.parametrize(
    ("setting", "lacks", "hint"),
    [
        ("weights.granularity=per-channel", "per-channel weights", "per-tensor"),
        ("weights.scheme=asymmetric", "asymmetric weights", "symmetric"),
        ("activations.granularity=per-token", "per-token activations", "per-tensor"),
        ("weights.format=int4", "product int8 x int4", "int8 x int8"),
    ],
)
def test_what_was_asked_for_is_declined_with_what_to_ask_for(model, setting, lacks, hint):
    for row in rows(model, target="npu-per-tensor", settings=[setting]):
        assert row["decision"] == "float"
        assert f"has no {lacks}" in row["reason"] and hint in row["reason"].split(";")[1]
    key, _, value = setting.partition("=")
    for row in rows(model, target="npu-per-tensor", rules=[f"a/*: {key}={value}"]):
        assert (row["decision"] == "float") == row["name"].startswith("a/")


def test_static_ranges_on_a_target_without_them(model):
    for row in rows(model, pipeline="int8-static", target="npu-per-tensor", calibration=[(X,)]):
        assert "has no static quantization" in row["reason"]
        assert "activations.mode=dynamic" in row["reason"]


def test_op_types(model):
    assert all(r["decision"] == "integer" for r in rows(model, settings=["op_types=dot_general"]))
    for row in rows(model, settings=["op_types=convolution"]):
        assert row["reason"] == "dot_general is not among op_types"


def test_a_target_of_ones_own_that_allows_almost_nothing(model, tmp_path):
    path = tmp_path / "nothing.toml"
    path.write_text(
        'description = "float only"\n'
        'flags = ["--iree-hal-target-device=local",'
        ' "--iree-hal-local-target-device-backends=llvm-cpu"]\n'
        "[device]\nproducts = []\nfloat_products = false\ndynamic = false\nstatic = false\n"
        "weight_granularities = []\nactivation_granularities = []\n"
        "weight_schemes = []\nactivation_schemes = []\nops = []\n"
    )
    for pipeline in ("int8-dynamic", "int8-weight-only", "int4-weight-only"):
        for row in rows(model, pipeline=pipeline, target=str(path)):
            assert (row["decision"], row["weights"]) == ("float", None)
            assert "nothing" in row["reason"]
    compiled = jq.compile(model, target=str(path))
    assert np.allclose(compiled(X), _two(model.params, X), atol=1e-4)
    # One permission more, and just that is used.
    path.write_text(path.read_text().replace("ops = []", 'ops = ["dot_general"]'))
    assert all("symmetric" in r["reason"] for r in rows(model, target=str(path)))


@pytest.mark.parametrize("target", ["llvm-cpu-generic", "llvm-cpu-aarch64"])
def test_processors_by_name_compile(model, target):
    compiled = jq.compile(model, target=target)
    assert [c.lhs for c in compiled.audit().contractions] == ["i8", "i8"]
    if target == "llvm-cpu-generic":
        want = evaluated(jq.rewrite(model)["integer"], X)[0]
        assert np.allclose(compiled(X), want, atol=1e-4)


@pytest.mark.parametrize("format", ["int4", "int16"])
def test_widths_of_activations_beside_each_other(model, format, tmp_path):
    path = tmp_path / "wide.toml"
    path.write_text('[device]\nproducts = ["int8 x int8", "int16 x int8", "int4 x int8"]\n')
    rule = f"a/*: activations.format={format}"
    formats = [
        r["activations"].split()[0]
        for r in rows(model, target=str(path), rules=[rule, "zzz: float"])
    ]
    assert formats == [format, "int8"]
    program = jq.rewrite(model, target=str(path), rules=[rule])["integer"]
    want = _two(model.params, X)
    error = np.abs(evaluated(program, X)[0] - want).max() / np.abs(want).max()
    assert error < (0.2 if format == "int4" else 0.02)
    assert jq.plan(model, rules=["zzz: float"]).unused_rules == ("zzz",)
