"""Products of int8 activations and weights in blocks, against the program with opened markers."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jq import api
from jq.frontends.model import Model
from jq.ir.oracle.interpreter import interpret
from jq.kernels import detect
from tests.support.programs import evaluated

TOKEN = {"activations.granularity": "per-token"}
EIGHT = {"weights.format": "int8", "weights.scheme": "symmetric"}
CASES = {
    "int4": {"weights.format": "int4"},
    "tokens": {"weights.format": "int4", **TOKEN},
    "asymmetric": {"weights.format": "int4", "weights.scheme": "asymmetric"},
    "channels": EIGHT | {"weights.granularity": "per-channel"},
    "coarse": {"weights.format": "int4", "weights.block_size": 128},
    "fine": {"weights.format": "int4", "weights.block_size": 16},
    "int8": EIGHT,
    **{name: {"weights.format": name} for name in ("q4_k", "q6_k", "q8_0")},
}


def model(rows: int, k: int, n: int) -> Model:
    rng = np.random.default_rng((rows, k, n))
    weight = rng.standard_normal((k, n), np.float32)
    params = {"kernel": weight, "bias": rng.standard_normal(n, np.float32)}
    x = rng.standard_normal((rows, k), np.float32)
    return Model(lambda p, x: jax.nn.relu(x @ p["kernel"] + p["bias"]), params, (x,))


@pytest.mark.skipif(detect().name == "portable", reason="slow without vectors")
@pytest.mark.parametrize(("name", "rows"), [("int4", 5), *((name, 1) for name in CASES)])
def test_result_is_that_of_the_integer_level(name: str, rows: int) -> None:
    """Up to the order of a float32 sum: nine blocks at most of each element."""
    m = model(rows, 512, 72)
    settings = CASES[name] | {"activations.scheme": "symmetric"}
    compiled = api.compile(m, "int4-dynamic", settings=settings)
    (x,) = m.example_inputs
    (want,) = evaluated(compiled.levels["integer"], x)
    y = np.asarray(compiled(x))
    assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()
    (row,) = compiled.audit().contractions
    assert "gemv" in row.kernel


TWO_DIGITS = {"activations.format": "int16", "activations.scheme": "symmetric"}
HALF = {"activations.options.divisor": "absmax/63"}


@pytest.mark.skipif(detect().name == "portable", reason="slow without vectors")
@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize("name", ["int4", "q4_k", "q8_0"])
def test_activations_of_two_digits(name: str, rows: int) -> None:
    """As near to the integer level as products of one digit are."""
    m = model(rows, 512, 72)
    compiled = api.compile(m, "int4-dynamic", settings=CASES[name] | TWO_DIGITS | HALF)
    (want,) = evaluated(compiled.levels["integer"], *m.example_inputs)
    y = np.asarray(compiled(*m.example_inputs))
    assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()
    (row,) = compiled.audit().contractions
    assert "gemv" in row.kernel and "split" in row.kernel


def test_half_of_the_codes_of_int8_stay_with_the_compiler() -> None:
    """The kernel that quantizes rows knows no such codes; the result is the integer level's."""
    m = model(3, 512, 72)
    settings = CASES["int4"] | {"activations.scheme": "symmetric"} | HALF
    compiled = api.compile(m, "int4-dynamic", settings=settings)
    (want,) = evaluated(compiled.levels["integer"], *m.example_inputs)
    y = np.asarray(compiled(*m.example_inputs))
    assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()


def test_codes_that_are_more_than_two_digits_say_why_not() -> None:
    plan = api.explain(model(1, 64, 32), pipeline="int4-dynamic", settings=TWO_DIGITS)
    assert "divisor absmax/63" in str(plan["ops"])


def test_zero_points_of_columns_beside_blocks_of_activations() -> None:
    settings = {"weights.format": "int8", "weights.granularity": "per-channel"}
    m = model(1, 512, 72)
    compiled = api.compile(m, "int4-dynamic", settings=settings)
    (want,) = evaluated(compiled.levels["integer"], *m.example_inputs)
    y = np.asarray(compiled(*m.example_inputs))
    assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()
    assert [row.kernel for row in compiled.audit().contractions] == [None]


def test_blocks_of_activations_are_those_of_the_weight() -> None:
    """The setting's blocks are used where the weight has none, or longer ones."""
    for settings, size in (({}, 32), (CASES["fine"], 16), (CASES["coarse"], 32)):
        (op,) = api.plan(model(1, 512, 72), pipeline="int4-dynamic", settings=settings).ops
        assert op.operands[0].encoding.block == (1, size)
    settings = {"weights.granularity": "per-channel"}  # blocks do not divide the axis
    (op,) = api.plan(model(1, 40, 72), pipeline="int4-dynamic", settings=settings).ops
    assert op.operands[0].encoding.block == (1, 0)


def test_large_values_spoil_only_their_block() -> None:
    m = model(1, 512, 72)
    (x,) = (np.array(a) for a in m.example_inputs)
    x[0, 3] = 1000
    errors = []
    for settings in ({}, TOKEN):
        compiled = api.compile(m, "int4-dynamic", settings=settings)
        plain = api.compile(m, "int4-weight-only")
        errors.append(np.abs(np.asarray(compiled(x)) - np.asarray(plain(x))).max())
    assert errors[0] < errors[1]


ROWS = {"activations.scheme": "asymmetric", "activations.granularity": "per-token"}
NARROW = {
    "int4 channels": {"weights.format": "int4", "weights.granularity": "per-channel"},
    "int2 tensor": {"weights.format": "int2", "weights.granularity": "per-tensor"},
    "points": {
        "weights.format": "int4",
        "weights.granularity": "per-channel",
        "weights.scheme": "asymmetric",
    },
}


@pytest.mark.skipif(detect().name == "portable", reason="slow without vectors")
@pytest.mark.parametrize("name", [*CASES, *NARROW])
def test_zero_points_of_rows(name: str) -> None:
    """Also of a whole tensor, all above zero: most of each sum is what the zero points add."""
    m = model(3, 512, 72)
    m = Model(m.fn, m.params, (np.abs(m.example_inputs[0]),))
    settings = EIGHT | (CASES | NARROW)[name] | ROWS
    compiled = api.compile(m, "int4-dynamic", settings=settings)
    (want,) = interpret(compiled.levels["integer"], *m.example_inputs)
    y = np.asarray(compiled(*m.example_inputs))
    exact = name in ("channels", "int4 channels", "int2 tensor")  # no blocks, whole numbers
    assert np.abs(y - want).max() <= (0 if exact else 1e-5) * np.abs(want).max()
    (row,) = compiled.audit().contractions
    assert ("gemm" if name == "channels" else "gemv") in row.kernel


def test_zero_points_of_blocks_say_why_not() -> None:
    settings = {"activations.scheme": "asymmetric"}
    plan = api.explain(model(1, 64, 32), pipeline="int4-dynamic", settings=settings)
    (row,) = plan["ops"]
    assert "activations with zero points in blocks" in str(row)
