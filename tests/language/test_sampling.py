"""The next token from logits."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.language.sampling import RECENT, Sampling, logprobs, looked_up

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def drawn(sampling, count=4000):
    rng = np.random.default_rng(0)
    return np.bincount([sampling.choose(LOGITS, rng) for _ in range(count)], minlength=4) / count


def test_greedy_takes_the_first_of_the_most_likely():
    rng = np.random.default_rng(0)
    assert Sampling().choose(LOGITS, rng) == 1
    assert Sampling().choose(np.array([1.0, 2, 2]), rng) == 1


# Four standard deviations of a share of 4,000 draws are at most 0.032.
@pytest.mark.parametrize(
    ("sampling", "want"),
    [
        (Sampling(1.0), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(0.5), np.array([1, 16, 4, 9]) / 30),
        (Sampling(1.0, top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(1.0, top_p=0.75), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sampling(1.0, top_p=0.3), [0, 1, 0, 0]),
        (Sampling(1.0, top_p=0), [0, 1, 0, 0]),
        (Sampling(1.0, top_k=1), [0, 1, 0, 0]),
        (Sampling(1.0, min_p=0.6), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(1.0, min_p=1), [0, 1, 0, 0]),
    ],
)
def test_shares(sampling, want):
    assert np.abs(drawn(sampling) - want).max() < 0.032


def sorted_whole(s, logits):
    """The tokens that may be drawn and their chances, by sorting all of them."""
    order = np.argsort(-logits, kind="stable")
    order = order[: s.top_k] if s.top_k else order
    chance = np.exp((logits[order].astype(np.float64) - logits[order[0]]) / s.temperature)
    chance /= chance.sum()
    within = np.searchsorted(np.cumsum(chance), s.top_p) if s.top_p < 1 else len(chance)
    kept = min(int(within) + 1, len(chance), int((chance >= s.min_p * chance[0]).sum()))
    return dict(zip(order[:kept].tolist(), chance[:kept] / chance[:kept].sum(), strict=True))


@pytest.mark.parametrize("size", [7, 1024, 1025, 40_000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 5},
        {"top_k": 3000, "top_p": 0.9},
        {"top_p": 0.5},
        {"top_p": 0.999},
        {"min_p": 0.05},
        {"min_p": 1e-9, "top_p": 0.99},
    ],
    ids=str,
)
def test_no_token_is_left_out_for_not_being_sorted(size, options):
    rng = np.random.default_rng(size)
    for temperature in (0.3, 3.0):
        for steps in (1, 1000):  # many equal ones, or hardly any
            logits = (np.round(rng.standard_normal(size) * 2 * steps) / steps).astype(np.float32)
            s = Sampling(temperature, **options)
            tokens, weights = s._likely(logits)
            want = sorted_whole(s, logits)
            assert set(tokens.tolist()) == set(want)
            found = weights / weights.sum()
            np.testing.assert_allclose(found, [want[t] for t in tokens.tolist()], rtol=1e-9)


def test_what_was_said_becomes_less_likely():
    """Positive logits are divided, negative ones multiplied; once, however often it was said."""
    rng, logits = np.random.default_rng(0), np.array([2.0, 3.0, -1.0, -1.5], np.float32)
    penalized = Sampling(repeat_penalty=2.0)
    assert penalized.choose(logits, rng) == 1
    assert penalized.choose(logits, rng, [1, 1]) == 0
    assert penalized.choose(logits[2:], rng, [0]) == 1
    assert penalized.choose(logits, rng, [1] + [2] * RECENT) == 1  # too long ago
    assert logits[1] == 3


@pytest.mark.parametrize(
    ("wrong", "range_of"),
    [
        ({"temperature": -1}, "0 or more"),
        ({"temperature": float("nan")}, "0 or more"),
        ({"top_p": -0.1}, "between 0 and 1"),
        ({"top_p": 2}, "between 0 and 1"),
        ({"top_p": float("nan")}, "between 0 and 1"),
        ({"top_k": -1}, r"0 \(all tokens\) or more"),
        ({"min_p": 1.1}, "between 0 and 1"),
        ({"repeat_penalty": 0}, "above 0"),
    ],
)
def test_impossible_ones_are_refused_with_what_is_possible(wrong, range_of):
    with pytest.raises(UserError, match=rf"{next(iter(wrong))} must be {range_of}, got "):
        Sampling(**wrong)


def test_penalties_by_presence_and_frequency():
    """Once for a token that was there, and for each time that it was."""
    before, logits = [0, 2, 2, 2], np.array([1.0, 2, 3, -1], np.float32)
    rng = np.random.default_rng(0)
    given = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    np.testing.assert_allclose(given._penalized(logits, before), [0.25, 2, 1.75, -1])
    assert given.choose(logits, rng, before) == 1
    assert Sampling(presence_penalty=0.5).choose(logits, rng, before) == 2
    both = Sampling(repeat_penalty=2.0, presence_penalty=0.5)
    np.testing.assert_allclose(both._penalized(logits, [3, 0]), [0, 2, 3, -2.5])
    for wrong in ({"presence_penalty": float("nan")}, {"frequency_penalty": float("inf")}):
        with pytest.raises(UserError, match="must be a number"):
            Sampling(**wrong)


def test_logprobs():
    np.testing.assert_allclose(np.exp(logprobs(LOGITS * 1)), [0.1, 0.4, 0.2, 0.3], rtol=1e-6)
    assert np.exp(logprobs(np.float32([1e30, 0, -1e30]))).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("tokens", "want"),
    [
        ([], []),
        ([5], []),
        ([5, 5], []),
        ([5, 5, 5], [5]),
        ([1, 2, 3, 1, 2], [3, 1]),
        ([9, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], [8, 1]),
        ([1, 2, 9, 4, 2, 8, 1, 2], [9, 4]),
    ],
)
def test_what_followed_before(tokens, want):
    """The longer of two ends that were there, the last time."""
    assert looked_up(tokens, 2) == want
