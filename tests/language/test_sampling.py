"""The next token from logits."""

from __future__ import annotations

import numpy as np
import pytest

from jq.errors import UserError
from jq.language.sampling import Sampling

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
    ],
)
def test_shares(sampling, want):
    assert np.abs(drawn(sampling) - want).max() < 0.032


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": 0}, {"top_k": -1}])
def test_impossible_ones_are_refused(wrong):
    with pytest.raises(UserError):
        Sampling(**wrong)
