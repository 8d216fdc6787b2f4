"""The next token from logits: the most likely one, or one drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.base.errors import UserError

SORTED = 1024  # of the likeliest tokens, at first
RECENT = 64  # tokens before the next one that `repeat_penalty` counts


@dataclass(frozen=True)
class Sampling:
    """A draw of a token: of the `top_k` most likely ones (0: of all), of those the fewest that
    together have the probability `top_p`, of those the ones at least `min_p` times as likely as the
    likeliest, at a `temperature` (0: the most likely one).

    Before all that, logits of the last `RECENT` tokens are divided by `repeat_penalty` where they
    are positive, and multiplied by it where they are negative (Keskar et al. 2019); and lowered by
    `presence_penalty`, and by `frequency_penalty` for each time that the token was there."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0  # of what is drawn

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"the temperature must be 0 or more, got {self.temperature}")
        if self.top_k < 0:
            raise UserError(f"top_k must be 0 (all tokens) or more, got {self.top_k}")
        for name in ("top_p", "min_p"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if not 0 < self.repeat_penalty < float("inf"):
            raise UserError(f"the repeat_penalty must be above 0, got {self.repeat_penalty}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not abs(getattr(self, name)) < float("inf"):
                raise UserError(f"the {name} must be a number, got {getattr(self, name)}")
        if self.seed < 0:
            raise UserError(f"the seed must be 0 or more, got {self.seed}")

    def choose(
        self, logits: np.ndarray, rng: np.random.Generator, before: Sequence[int] = ()
    ) -> int:
        """A token by its logits f32[vocabulary] and those before it; of equal ones the first."""
        logits = self._penalized(logits, before)
        if not self.temperature:
            return int(np.argmax(logits))
        order, chance = self._likely(logits)
        return int(order[rng.choice(len(chance), p=chance / chance.sum())])

    def _likely(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that may be drawn, the likeliest first where any is left out, and their
        chances. Vocabularies are large: no more of one is sorted than has to be."""
        count = min(self.top_k or len(logits), len(logits))
        if count == len(logits) and self.top_p == 1 and not self.min_p:
            return np.arange(count), self._weights(logits, logits.max())
        size = count if self.top_k else min(count, SORTED)
        while True:
            order = likeliest(logits, size)
            chance = self._weights(logits[order], logits[order[0]])
            kept = int((chance >= self.min_p * chance[0]).sum())
            if self.top_p < 1:
                whole = chance if size == count else self._weights(logits, logits[order[0]])
                within = np.searchsorted(np.cumsum(chance / whole.sum()), self.top_p)
                kept = min(kept, int(within) + 1)
            if kept < size or size == count:
                return order[:kept], chance[:kept]
            size = min(count, 16 * size)

    def _weights(self, logits: np.ndarray, most: np.float32) -> np.ndarray:
        """Chances times a constant: 1 for the likeliest token."""
        return np.exp((logits.astype(np.float64) - most) / self.temperature)

    def _penalized(self, logits: np.ndarray, before: Sequence[int]) -> np.ndarray:
        penalties = (self.repeat_penalty, self.presence_penalty, self.frequency_penalty)
        if penalties == (1, 0, 0) or not before:
            return logits
        seen, times = np.unique(before[-RECENT:], return_counts=True)
        found, old = logits.copy(), logits[seen]
        new = np.where(old > 0, old / self.repeat_penalty, old * self.repeat_penalty)
        found[seen] = new - self.presence_penalty - self.frequency_penalty * times
        return found


def logprobs(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of chances f64[..., vocabulary]."""
    from scipy.special import log_softmax  # takes long to import

    return np.asarray(log_softmax(logits.astype(np.float64), axis=-1))


def looked_up(tokens: Sequence[int], most: int) -> list[int]:
    """The tokens, at most `most`, that followed when the last three, or two, were there before, the
    last time (Saxena 2023).

    Examples:
        >>> looked_up([1, 2, 3, 4, 1, 2], 2)
        [3, 4]"""
    for size in (3, 2):
        end = tuple(tokens[-size:])
        for at in range(len(tokens) - size - 1, -1, -1):
            if tuple(tokens[at : at + size]) == end:
                return list(tokens[at + size : at + size + most])
    return []


def likeliest(logits: np.ndarray, count: int) -> np.ndarray:
    """The numbers of the `count` largest logits, the largest first, of equal ones the first."""
    found = np.flatnonzero(logits >= np.partition(logits, -count)[-count])
    return found[np.argsort(-logits[found], kind="stable")][:count]
