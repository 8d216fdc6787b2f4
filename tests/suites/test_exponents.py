"""A sample of `scripts/suite.py exponents`, and of what recovery does with exponents of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jq
from jq.formats import Encoding
from jq.formats.affine import affine_format
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.recovery._ranges import search_ranges
from jq.passes.recovery._solve import solve

K, N = 16, 8


@pytest.mark.parametrize("seed", [0, 3, 52036])  # the last: 4 bits, smoothed
def test_drawn_layers(judged: Any, seed: int) -> None:
    from suites.exponents import Case, judge
    from suites.outcome import RIGHT

    (found,) = judged(judge, [Case(seed)])
    assert found.verdict == RIGHT, found


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("name", ["int4", "int8"])
def test_an_exponent_of_a_column_moves_its_scales_alone(name: str, scheme: Any) -> None:
    """Codes are those of the same numbers next to 1, whatever the exponents of inputs."""
    rng = np.random.default_rng(3)
    exponents = np.array([-112, -70, -41, 0, 0, 41, 70, 125])
    weight = rng.uniform(-1, 1, (K, N)).astype(np.float32)
    rows = rng.standard_normal((64, K))
    gram, enc = rows.T @ rows, Encoding(name, (K, N), (0, 1), scheme)
    for far in (exponents, exponents[::-1]):
        whole = solve(np.ldexp(weight, far), np.ldexp(gram, 300), enc)
        plain = solve(weight, gram, enc, passes=3)
        ranges = search_ranges(
            affine_format(name), np.ldexp(weight, far), np.diag(gram)[:, None], enc
        )
        near = search_ranges(affine_format(name), weight, np.diag(gram)[:, None], enc)
        assert np.array_equal(ranges[0], np.ldexp(near[0], far))
        assert np.array_equal(ranges[1], near[1])
        assert np.array_equal(whole.codes, plain.codes)
        assert np.array_equal(whole.zero, plain.zero)
        assert np.array_equal(whole.scale, np.ldexp(plain.scale, far))


@pytest.mark.parametrize("pipeline", ["int8-static", "int8-dynamic", "int8x16-static"])
def test_a_huge_channel_keeps_its_scale(pipeline: str) -> None:
    """Squares of its errors leave float32; recovery is on."""
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((K, 2)) * [1, 1e25]).astype(np.float32)
    data = [(rng.standard_normal((8, K)).astype(np.float32),) for _ in range(3)]
    model = jq.Model(lambda p, x: x @ p["w"], {"w": w}, data[0], calibration=data)
    (x,) = data[0]
    found = XlaExecutable(jq.rewrite(model, pipeline=pipeline)["integer"])(x)[0]
    want = x.astype(np.float64) @ w
    noise, signal = (np.linalg.norm(v / [1, 1e25], axis=0) for v in (found - want, want))
    assert (noise < 0.05 * signal).all()
