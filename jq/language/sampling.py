"""The next token from logits: the most likely one, or one drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.errors import UserError

RECENT = 64  # tokens before the next one that `repeat_penalty` counts


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: of the `top_k` most likely ones (0: of all), of those the fewest that
    together have the probability `top_p`, of those the ones at least `min_p` times as likely as the
    likeliest, at a `temperature` (0: the most likely one).

    Before all that, logits of the last `RECENT` tokens are divided by `repeat_penalty` where they
    are positive, and multiplied by it where they are negative (Keskar et al. 2019).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"the temperature must be 0 or more, got {self.temperature}")
        if self.top_k < 0 or not 0 <= self.top_p <= 1:
            raise UserError(f"no tokens of top_k {self.top_k} and top_p {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p must be between 0 and 1, got {self.min_p}")
        if not 0 < self.repeat_penalty < float("inf"):
            raise UserError(f"the repeat_penalty must be above 0, got {self.repeat_penalty}")

    def choose(
        self, logits: np.ndarray, rng: np.random.Generator, before: Sequence[int] = ()
    ) -> int:
        """A token by its logits f32[vocabulary] and the tokens before it; of equal ones the
        first."""
        logits = self._penalized(logits, before)
        if not self.temperature:
            return int(np.argmax(logits))
        order = np.argsort(-logits, kind="stable")
        order = order[: self.top_k] if self.top_k else order
        scores = logits[order].astype(np.float64)
        chance = np.exp((scores - scores[0]) / self.temperature)
        chance /= chance.sum()
        kept = int(np.searchsorted(np.cumsum(chance), self.top_p)) + 1
        kept = min(kept, int((chance >= self.min_p * chance[0]).sum()))
        chance = chance[:kept] / chance[:kept].sum()
        return int(order[rng.choice(len(chance), p=chance)])

    def _penalized(self, logits: np.ndarray, before: Sequence[int]) -> np.ndarray:
        if self.repeat_penalty == 1 or not before:
            return logits
        seen, found = np.unique(before[-RECENT:]), logits.copy()
        old = found[seen]
        found[seen] = np.where(old > 0, old / self.repeat_penalty, old * self.repeat_penalty)
        return found


def checked_seed(seed: int) -> int:
    """A seed; `UserError` where it is none."""
    if seed < 0:
        raise UserError(f"the seed must be 0 or more, got {seed}")
    return seed
