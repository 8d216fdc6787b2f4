"""The next token from logits: the most likely one, or one drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.errors import UserError


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: of the `top_k` most likely ones (0: of all), of those the fewest that
    together have the probability `top_p`, at a `temperature` (0: the most likely one)."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"the temperature must be 0 or more, got {self.temperature}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UserError(f"no tokens of top_k {self.top_k} and top_p {self.top_p}")

    def choose(self, logits: np.ndarray, rng: np.random.Generator) -> int:
        """A token by its logits f32[vocabulary]; of equal ones the first."""
        if not self.temperature:
            return int(np.argmax(logits))
        order = np.argsort(-logits, kind="stable")
        order = order[: self.top_k] if self.top_k else order
        scores = logits[order].astype(np.float64)
        chance = np.exp((scores - scores[0]) / self.temperature)
        chance /= chance.sum()
        kept = int(np.searchsorted(np.cumsum(chance), self.top_p)) + 1
        chance = chance[:kept] / chance[:kept].sum()
        return int(order[rng.choice(len(chance), p=chance)])


def checked_seed(seed: int) -> int:
    """A seed; `UserError` where it is none."""
    if seed < 0:
        raise UserError(f"the seed must be 0 or more, got {seed}")
    return seed
