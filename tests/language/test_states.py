"""Layers with a state that does not hold all tokens: pieces, padding, batches, and going back."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.frontends.safetensors import read_file, write_model
from jq.language.build import write
from jq.language.decoder import load_decoder
from jq.language.decoder.network import empty, step
from tests.language.decoder.test_decoder import TOLERANCE, logits_of
from tests.support.decoders import write_folder

TOKENS = np.random.default_rng(0).integers(3, 48, 24).tolist()
PROMPT = 18


@pytest.mark.parametrize("case", ["qwen3.5", "falcon-h1", "lfm2"])
def test_padding_is_not_taken_in(tmp_path, case):
    """Two sequences at positions of their own, with padding behind the tokens of each piece."""
    decoder = load_decoder(write_folder(case, tmp_path / "model"))
    config = decoder.config
    params = jax.tree.map(np.asarray, decoder.parameters(32))
    run, rng = jax.jit(partial(step, config)), np.random.default_rng(1)
    rows, states = [TOKENS[:13], TOKENS[5:20]], empty(config, 2, 32)
    at, got = np.zeros(2, np.int32), [[], []]
    with jax.default_matmul_precision("highest"):
        while any(at[i] < len(row) for i, row in enumerate(rows)):
            piece = rng.integers(3, 48, (2, 4)).astype(np.int32)
            count = np.zeros(2, np.int32)
            for i, row in enumerate(rows):
                part = row[at[i] : at[i] + rng.integers(0, 5)]
                count[i], piece[i, : len(part)] = len(part), part
            logits, states = run(params, jnp.asarray(piece), jnp.asarray(at), states, None, count)
            for i in range(2):
                got[i].extend(np.asarray(logits[i, : count[i]]))
            at = at + count
    for row, found in zip(rows, got, strict=True):
        want = logits_of(decoder, row)
        assert np.abs(np.array(found) - want).max() <= TOLERANCE * np.abs(want).max()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jq.language.session.COSTS", {1: 1.0, 16: 2.5})
        patch.setattr("jq.language.programs.build", write)
        path = write_folder("lfm2", tmp_path_factory.mktemp("model") / "lfm2")
        cache = tmp_path_factory.mktemp("cache")
        yield jq.LanguageModel(path, pipeline="float", context=32, cache_dir=cache)


@pytest.fixture(scope="module")
def want(model):
    """Rows of plain JAX."""
    return logits_of(load_decoder(model.path), TOKENS)


def assert_close(got, want):
    assert np.abs(got[0] - want).max() <= 1e-4 * np.abs(want).max()


def test_pieces(model, want):
    session = model.session()
    assert_close(session.take(TOKENS[:PROMPT]), want[PROMPT - 1])
    for i in range(PROMPT, 22):
        assert_close(session.take([TOKENS[i]]), want[i])
    assert_close(session.take(TOKENS[22:]), want[23])


def test_a_session_begins_with_no_state(model, want):
    """An earlier session's state in memory is not read."""
    for count in (3, 16, 17):
        assert_close(model.session().take(TOKENS[:count]), want[count - 1])


def test_going_back(model, want):
    """To a state that was kept, or to the beginning; what is left to take says which."""
    session = model.session()
    session.take(TOKENS[:PROMPT])
    for token in TOKENS[PROMPT:22]:
        session.take([token])
    assert session.resume(TOKENS[:20]) == TOKENS[PROMPT:20]
    assert_close(session.take(TOKENS[PROMPT:20]), want[19])
    assert session.resume(TOKENS) == TOKENS[20:]  # goes on: nothing to take back
    assert session.resume(TOKENS[:4]) == TOKENS[:4]
    assert_close(session.take(TOKENS[:4]), want[3])
    other = [7, *TOKENS[1:6]]
    left = session.resume(other)
    assert left == other
    alone = model.session().take(other)
    np.testing.assert_allclose(session.take(left), alone, rtol=1e-5, atol=1e-6)


def test_a_prompt_that_is_kept(model, want, tmp_path):
    """It goes on in another session, and one of another model is refused."""
    first, path = model.session(), tmp_path / "prompt"
    with pytest.raises(jq.UserError, match="no token to keep"):
        first.save(path)
    first.take(TOKENS[:PROMPT])
    first.save(path)
    again = model.session()
    again.take([5, 6])
    again.restore(path)
    assert again.resume(TOKENS) == TOKENS[PROMPT:]
    np.testing.assert_array_equal(again.take(TOKENS[PROMPT:20]), first.take(TOKENS[PROMPT:20]))
    assert again.resume(TOKENS[:19]) == TOKENS[PROMPT:19]
    assert_close(again.take(TOKENS[PROMPT:19]), want[PROMPT])
    other = jq.LanguageModel(model.path, pipeline="float", context=33, cache_dir=tmp_path)
    with pytest.raises(jq.UserError, match="another model, or with other options"):
        other.session().restore(path)
    kept = {n: a for n, a in read_file(path).items() if not n.startswith("cache.")}
    write_model(tmp_path / "none", kept)
    with pytest.raises(jq.UserError, match="of other shapes"):
        model.session().restore(tmp_path / "none")
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[:-4],
        whole.replace(b"tokens", b"tokenz"),
        whole.replace(b"cache.1", b"cache.9"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(jq.UserError):
            model.session().restore(path)
