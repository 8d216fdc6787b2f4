"""Experts: of a token only those that the router takes are computed, and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.language.build import write
from jq.language.decoder import feed_forward, load_decoder
from jq.language.decoder.products import INPUTS
from tests.support.decoders import write_folder

CASES = ["mixtral", "qwen2-experts", "llama4", "gpt-oss"]


def layer_of(case, path):
    decoder = load_decoder(write_folder(case, path / "model"))
    layers = decoder.params["layers"].values()
    p = next(layer["mlp"] for layer in layers if "experts" in layer["mlp"])
    return decoder.config, jax.tree.map(lambda a: np.asarray(a, np.float32), p)


@cache
def layer(config, every):
    """The layer, by plain JAX; `every`: as it is where all experts are computed."""

    def run(p, x):
        reset = INPUTS.set((lambda weight, inputs, name: inputs) if every else None)
        try:
            with jax.default_matmul_precision("highest"):
                return feed_forward.feed_forward(config, 0, p, x)
        finally:
            INPUTS.reset(reset)

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})


def of(config, p, x, every=False):
    return np.asarray(layer(config, every)(p, jnp.asarray(x)))


def stacked(p):
    """The layer with the weights of all experts in one array."""
    experts = [p["experts"][str(i)] for i in range(len(p["experts"]))]
    return {**p, "experts": jax.tree.map(lambda *each: np.stack(each), *experts)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 9)])
@pytest.mark.parametrize("stacks", [False, True])
def test_rows_are_those_of_all_experts(tmp_path, case, shape, stacks):
    config, p = layer_of(case, tmp_path)
    x = np.random.default_rng(sum(shape)).normal(0, 1, (*shape, config.hidden)).astype(np.float32)
    want = of(config, p, x, every=True)
    p = stacked(p) if stacks else p
    got = of(config, p, x)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    for i in range(shape[0]):
        for j in range(0, shape[1], 4):
            alone = of(config, p, x[i : i + 1, j : j + 1])
            assert np.abs(got[i, j] - alone[0, 0]).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("case", ["qwen2-experts", "llama4"])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_token_computes_no_experts_but_those_that_it_takes(tmp_path, case, count):
    """They are NaN, which times 0 would be NaN."""
    config, p = layer_of(case, tmp_path)
    x = np.random.default_rng(0).normal(0, 1, (1, count, config.hidden)).astype(np.float32)
    want = of(config, p, x)
    assert np.isfinite(want).all()
    spoiled = 0
    for i, expert in p["experts"].items():
        nan = jax.tree.map(lambda a: np.full_like(a, np.nan), expert)
        found = of(config, {**p, "experts": {**p["experts"], i: nan}}, x)
        rows = np.isnan(found).any(axis=-1)
        np.testing.assert_array_equal(found[~rows], want[~rows])
        spoiled += rows.sum()
    assert spoiled == config.experts_used * count


def test_an_expert_may_take_no_row_or_all(tmp_path):
    config, p = layer_of("mixtral", tmp_path)
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(0, 1, (1, 40, config.hidden))).astype(np.float32)
    p["router"]["weight"] = np.zeros_like(p["router"]["weight"])
    for last in (0, config.experts - 1):
        p["router"]["weight"][:] = 0
        p["router"]["weight"][last] = 9
        one = replace(config, experts_used=1)
        want = of(one, p, x, every=True)
        assert np.abs(of(one, p, x) - want).max() <= 1e-5 * np.abs(want).max()


def test_a_compiled_model_has_the_same_rows_in_any_pieces(tmp_path, monkeypatch):
    """Bits, in int8: a row does not depend on which others are computed beside it."""
    monkeypatch.setattr("jq.language.programs.build", write)
    monkeypatch.setattr("jq.language.session.COSTS", {1: 1.0, 16: 2.5})
    path = write_folder("mixtral", tmp_path / "model")
    model = jq.LanguageModel(path, context=32, cache_dir=tmp_path / "cache")
    tokens = np.random.default_rng(0).integers(3, 48, 19).tolist()
    whole, apart = model.session(), model.session()
    want = whole.take(tokens)
    for token in tokens:
        got = apart.take([token])
    np.testing.assert_array_equal(got, want)
