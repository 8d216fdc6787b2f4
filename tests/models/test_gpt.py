"""The decoder: steps against NumPy over the whole sequence, caches, greedy search."""

import jax
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.models.zoo.gpt import build, empty_cache, forward, greedy, step

SIZES = {"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 61, "context": 12}
HEADS = SIZES["heads"]


@pytest.fixture(scope="module")
def model():
    return build(**SIZES)


def numpy_logits(params, tokens):
    """Scores of a whole sequence in float64, one layer, head and position at a time."""

    def norm(p, y):
        return y / np.sqrt(np.mean(y**2, axis=-1, keepdims=True) + 1e-6) * p["scale"]

    embed = params["embed"]
    table = embed["tokens"]["embedding"].astype(np.float64)
    hidden = table.shape[1]
    x = table[tokens] * np.sqrt(hidden) + embed["positions"]["embedding"][: len(tokens)]
    for i in range(len(params["layers"]["attention"]["query"]["kernel"])):
        p = jax.tree.map(lambda a, i=i: a[i], params["layers"])
        y = norm(p["attention"]["norm"], x)
        q, k, v = (y @ p["attention"][n]["kernel"] for n in ("query", "key", "value"))
        context = np.zeros_like(x)
        for head in np.split(np.arange(hidden), HEADS):
            for t in range(len(tokens)):
                scores = k[: t + 1, head] @ q[t, head] / np.sqrt(len(head))
                weights = np.exp(scores - scores.max())
                context[t, head] = weights / weights.sum() @ v[: t + 1, head]
        x = x + context @ p["attention"]["output"]["kernel"]
        y = norm(p["mlp"]["norm"], x)
        gate = y @ p["mlp"]["gate"]["kernel"]
        inner = gate / (1 + np.exp(-gate)) * (y @ p["mlp"]["up"]["kernel"])
        x = x + inner @ p["mlp"]["down"]["kernel"]
    return norm(params["norm"], x) @ table.T


TOKENS = np.array([5, 60, 0, 17, 17, 3, 42, 8, 9, 10, 11, 12], np.int32)


def test_forward_against_numpy(model):
    got = forward(model.params, TOKENS, HEADS)
    np.testing.assert_allclose(got, numpy_logits(model.params, TOKENS), atol=2e-5)


def test_steps_against_numpy(model):
    expected = numpy_logits(model.params, TOKENS)
    fn, caches = jax.jit(model.fn), empty_cache(model.params, HEADS)
    for position, token in enumerate(TOKENS):
        logits, *caches = fn(model.params, token[None], np.int32(position), *caches)
        np.testing.assert_allclose(logits[0], expected[position], atol=2e-5)


def test_prompt_in_chunks(model):
    """Any number of tokens a step, also into a cache whose unused part holds anything."""
    caches = [np.full_like(c, 7.0) for c in empty_cache(model.params, HEADS)]
    got = []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        logits, *caches = step(model.params, TOKENS[start:stop], np.int32(start), *caches)
        got.append(logits)
    np.testing.assert_allclose(np.concatenate(got), numpy_logits(model.params, TOKENS), atol=2e-5)


def test_sets_hold_real_caches(model):
    calibration, evaluation = model.calibration(), model.evaluation()
    assert (len(calibration), len(evaluation)) == (16, 32)
    for token, position, k, v in evaluation:
        shapes = [(a.shape, a.dtype) for a in (token, position, k, v)]
        assert shapes == [(s.shape, s.dtype) for s in model.example_inputs]
        for cache in (k, v):
            assert np.abs(cache[:, :position]).min(axis=(2, 3)).all()
            assert not cache[:, position:].any()


def test_greedy_follows_the_largest_score(model):
    prompt = [3, 1, 4]
    found = greedy(jax.jit(model.fn), model.params, prompt, 8, HEADS)
    for i, token in enumerate(found):
        past = np.array(prompt + found[:i], np.int32)
        assert token == numpy_logits(model.params, past)[-1].argmax()
    assert len(set(found)) > 1


def test_parameters_are_stacked_and_tied(model):
    p = model.params
    assert p["layers"]["mlp"]["down"]["kernel"].shape == (2, 128, 32)
    assert p["layers"]["attention"]["norm"]["scale"].shape == (2, 32)
    assert sorted(p) == ["embed", "layers", "norm"]
    assert "while" in jax.jit(model.fn).lower(p, *model.example_inputs).as_text()


def test_refusals(model):
    with pytest.raises(UserError, match="multiple"):
        build(hidden=30, heads=4)
    with pytest.raises(UserError, match="12 positions"):
        greedy(step, model.params, [1] * 8, 6, HEADS)
    with pytest.raises(UserError):
        greedy(step, model.params, [], 3, HEADS)
