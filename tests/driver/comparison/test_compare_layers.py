"""The error of every contraction, against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.driver.comparison.layers import compare_layers
from jq.formats import NUMPY, Encoding, get_format

pytestmark = pytest.mark.usefixtures("quick_xla")

ALL = {"min_elements": 1}


def mlp(params: Any, x: Any) -> Any:
    return jnp.maximum(x @ params["first"], 0) @ params["second"]


def through_int8(weight: np.ndarray) -> np.ndarray:
    encoding = Encoding("int8", weight.shape, (0, 1))
    fmt = get_format("int8")
    return np.asarray(fmt.decode(NUMPY, fmt.encode(weight, encoding), encoding))


def sqnr(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    reference, quantized = (
        np.concatenate(side).astype(np.float64) for side in zip(*pairs, strict=True)
    )
    return float(10 * np.log10((reference**2).sum() / ((reference - quantized) ** 2).sum()))


def inside(model: jq.Model, batches: Any, pipeline: str, **options: Any) -> Any:
    levels = jq.rewrite(model, pipeline=pipeline, **options)
    plan = jq.plan(model, pipeline=pipeline, **options)
    return compare_layers(levels["float"], levels["qdq"], plan, batches)


def through_tokens(x: np.ndarray) -> np.ndarray:
    """int8 with a range for each row, as `int8-dynamic` quantizes activations."""
    encoding = Encoding("int8", x.shape, (1, 0), "asymmetric")
    fmt = get_format("int8")
    return np.asarray(fmt.fake_quantize(NUMPY, x, encoding))


def two_layers() -> tuple[dict[str, np.ndarray], list[tuple[np.ndarray]]]:
    rng = np.random.default_rng(0)
    params = {
        "first": rng.standard_normal((64, 96), np.float32),
        "second": rng.standard_normal((96, 16), np.float32),
    }
    return params, [(rng.standard_normal((8, 64), np.float32),) for _ in range(3)]


def test_layers_against_numpy() -> None:
    params, batches = two_layers()
    found = inside(jq.Model(mlp, params, batches[0]), batches, "int8-dynamic").layers
    stored = {name: through_int8(w) for name, w in params.items()}
    first, second, alone = [], [], []
    for (x,) in batches:
        first.append((x @ params["first"], through_tokens(x) @ stored["first"]))
        r, q = (np.maximum(h, 0) for h in first[-1])
        second.append((r @ params["second"], through_tokens(q) @ stored["second"]))
        alone.append((r @ params["second"], through_tokens(r) @ stored["second"]))
    assert [(layer.name, layer.op) for layer in found] == [
        ("first", "dot_general"),
        ("second", "dot_general"),
    ]
    # Sums in another order: 96 terms of float32 against noise of 8 bits.
    assert found[0].sqnr_db == pytest.approx(sqnr(first), abs=0.01)
    assert found[0].isolated_sqnr_db == pytest.approx(sqnr(first), abs=0.01)
    assert found[1].sqnr_db == pytest.approx(sqnr(second), abs=0.01)
    assert found[1].isolated_sqnr_db == pytest.approx(sqnr(alone), abs=0.01)
    assert found[1].isolated_sqnr_db > found[1].sqnr_db + 1
    largest = max(float(np.abs(r - q).max()) for r, q in alone)
    assert found[1].isolated_max_abs_error == pytest.approx(largest, rel=1e-3)


def test_a_float_op_has_no_isolated_error() -> None:
    params, batches = two_layers()
    rules = ["second: float"]
    found = inside(jq.Model(mlp, params, batches[0]), batches, "int8-dynamic", rules=rules).layers
    assert found[1].sqnr_db < 60
    assert (found[1].isolated_sqnr_db, found[1].isolated_max_abs_error) == (np.inf, 0)


def test_what_ops_read() -> None:
    params, batches = two_layers()
    model = jq.Model(mlp, params, batches[0])
    found = inside(model, batches, "int8-static", calibration=[(batches[0][0] / 2,)]).activations
    x = np.stack([x for (x,) in batches])
    assert [(a.name, a.kind) for a in found] == [("first:0", "static"), ("second:0", "static")]
    assert (found[0].low, found[0].high) == (x.min(), x.max())
    seen = float(x[0].min()) / 2, float(x[0].max()) / 2
    scale = (seen[1] - seen[0]) / 255
    assert found[0].clip_low == pytest.approx(seen[0], abs=scale / 2)
    assert found[0].clip_high == pytest.approx(seen[1], abs=scale / 2)
    beyond = (x < found[0].clip_low - scale / 2) | (x > found[0].clip_high + scale / 2)
    assert beyond.any()
    assert found[0].saturation == pytest.approx(beyond.mean())
    dynamic = inside(model, batches, "int8-dynamic").activations
    assert [(a.kind, a.clip_low, a.saturation) for a in dynamic] == [("dynamic", None, 0.0)] * 2


def test_tied_and_transposed_weights() -> None:
    def tied(params: Any, ids: Any) -> Any:
        return jnp.tanh(params["table"][ids]) @ params["table"].T

    params = {"table": np.random.default_rng(0).standard_normal((40, 16), np.float32)}
    ids = (np.arange(8, dtype=np.int32),)
    found = inside(jq.Model(tied, params, ids), [ids], "int8-weight-only", settings=ALL).layers
    assert [layer.op for layer in found] == ["gather", "dot_general"]
    decoded = through_int8(params["table"].T).T
    hidden = np.tanh(params["table"][:8])
    pair = hidden @ params["table"].T, hidden @ decoded.T
    assert found[0].isolated_sqnr_db == found[0].sqnr_db
    assert found[1].isolated_sqnr_db == pytest.approx(sqnr([pair]), abs=0.01)


def stack(params: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["w"])[0] @ params["v"]


def test_ops_in_loops_count_every_iteration() -> None:
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((3, 8, 8), np.float32), "v": np.eye(8, dtype=np.float32)}
    (x,) = batch = (rng.standard_normal((2, 8), np.float32),)
    found = inside(jq.Model(stack, params, batch), [batch], "int8-weight-only", settings=ALL).layers
    assert [layer.name for layer in found] == ["w", "v"]
    encoding = Encoding("int8", (3, 8, 8), (1, 0, 1))
    fmt = get_format("int8")
    stored = np.asarray(fmt.decode(NUMPY, fmt.encode(params["w"], encoding), encoding))
    pairs, alone, r, q = [], [], x, x
    for weight, decoded in zip(params["w"], stored, strict=True):
        pairs.append((r @ weight, q @ decoded))
        alone.append((r @ weight, r @ decoded))
        r, q = (np.tanh(side) for side in pairs[-1])
    assert found[0].sqnr_db == pytest.approx(sqnr(pairs), abs=0.01)
    assert found[0].isolated_sqnr_db == pytest.approx(sqnr(alone), abs=0.01)


def test_ops_in_branches_and_nested_loops() -> None:
    def nested(params: Any, x: Any, flag: Any) -> Any:
        def outer(_: Any, h: Any) -> Any:
            return jax.lax.fori_loop(0, 3, lambda _, g: jnp.tanh(g @ params["inner"]), h)

        x = jax.lax.fori_loop(0, 2, outer, x)
        return jax.lax.cond(flag > 0, lambda v: v @ params["branch"], lambda v: v, x)

    rng = np.random.default_rng(0)
    params = {k: rng.standard_normal((8, 8), np.float32) for k in ("inner", "branch")}
    x = rng.standard_normal((2, 8), np.float32)
    batches = [(x, np.int32(1)), (x, np.int32(0))]
    found = inside(jq.Model(nested, params, batches[0]), batches, "int8-dynamic")
    assert [layer.name for layer in found.layers] == ["inner", "branch"]
    assert all(15 < layer.isolated_sqnr_db < 60 for layer in found.layers)
    assert found.activations[0].high == x.max()


def test_bfloat16_and_integer_results() -> None:
    def ranks(params: Any, x: Any) -> Any:
        scores = x @ params["w"]
        return {"best": jnp.argmax(scores, -1), "scores": scores}

    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.standard_normal((32, 16)), jnp.bfloat16)}
    batch = (jnp.asarray(rng.standard_normal((4, 32)), jnp.bfloat16),)
    model = jq.Model(ranks, params, batch)
    comparison = jq.compare(model, None, [batch], layers=True)
    (layer,) = comparison.layers
    assert 20 < layer.isolated_sqnr_db < 60
    assert {o.match is None for o in comparison.outputs} == {True, False}
