"""Tokens as they are generated, and their text as it comes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from jq.language.decoder.config import Config
from jq.language.grammar import Grammar
from jq.language.sampling import RECENT, Sampling, likeliest, logprobs, looked_up
from jq.language.session import Session
from jq.language.store import Options
from jq.language.tokenizer import Tokenizer


@dataclass
class Times:
    """Seconds: until the first token, and of computing the prompt and the tokens after the first;
    loading and compiling count for the first token alone."""

    prompt_tokens: int = 0
    first_token: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    decoded: int = 0

    @property
    def prefill_rate(self) -> float:
        """Tokens of the prompt per second."""
        return self.prompt_tokens / self.prefill if self.prefill else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first."""
        return self.decoded / self.decode if self.decode else 0.0


class Model(Protocol):
    """The members of a `LanguageModel` that decoding and measuring need."""

    path: Path
    config: Config
    options: Options

    @property
    def tokenizer(self) -> Tokenizer: ...

    def session(self) -> Session: ...


@dataclass
class Generation(Iterator[int]):
    """Tokens as they are generated. `tokens` are those so far, `ended` says why there are no more:
    "end" (the model's own token for it, which is not among them), "stop" (one of the texts in
    `stop`, which the text ends before), "length" or "context".

    `session`: a sequence to go on with, of which the tokens that the prompt begins with, too, need
    not be computed again.

    `lookup`: at most so many tokens that followed the same ones before are computed along with the
    next one, and kept as far as they are what is chosen.

    `logprobs`: where it is no None, `chances` has for each token the logarithm of its chance before
    penalties and temperature, and so many of the likeliest tokens with theirs.

    `grammar`: the form that the text is held to; whole where it ended with "end"."""

    model: Model
    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling
    stop: Sequence[str] = ()
    session: Session | None = None
    lookup: int = 0
    logprobs: int | None = None
    grammar: Grammar | None = None
    chances: list[tuple[float, dict[int, float]]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    ended: str | None = None

    def __post_init__(self) -> None:
        self._steps = self._run()

    def __next__(self) -> int:
        return next(self._steps)

    @property
    def text(self) -> str:
        """The text that has been generated so far, without the prompt."""
        whole = self.model.tokenizer.decode(self.tokens)
        found = [at for at in map(whole.find, self.stop) if at >= 0]
        return whole[: min(found)] if found else whole

    def pieces(self) -> Iterator[str]:
        """The text as it comes, a piece for each token: whole characters, and nothing that may turn
        out to be the beginning of a text to stop at."""
        done = 0
        for _ in self:
            text = self.text
            sure = len(text) - _begun(text, self.stop)
            if text.endswith("\ufffd"):  # part of a character
                sure = done
            yield text[done:sure]
            done = max(done, sure)
        yield self.text[done:]

    def _run(self) -> Iterator[int]:
        session = self.session or self.model.session()
        rng = np.random.default_rng(self.sampling.seed)
        start, before = time.perf_counter(), session.seconds
        left = session.resume(self.prompt)
        self.times.prompt_tokens = len(left)
        rows, guess = session.take(left), list[int]()
        self.times.first_token = time.perf_counter() - start
        self.times.prefill = session.seconds - before
        held = self.grammar
        self.ended = "end" if held and held.done else None
        while not self.ended:
            said = [*self.prompt[-RECENT:], *self.tokens[-RECENT:]]
            token = self.sampling.choose(held.masked(rows[0]) if held else rows[0], rng, said)
            if token in self.model.tokenizer.ends:
                self.ended = "end"
                return
            if held:
                held.take(token)
            self.tokens.append(token)
            self._note(rows[0], token)
            yield token
            text = self.model.tokenizer.decode(self.tokens) if self.stop else ""
            whole = [*self.prompt, *self.tokens]
            room = self.model.options.context - len(whole)
            if any(stop in text for stop in self.stop):
                self.ended = "stop"
            elif held and held.done:
                self.ended = "end"
            elif len(self.tokens) >= self.max_tokens:
                self.ended = "length"
            elif room < 0:
                self.ended = "context"
            if self.ended:
                return
            if guess and guess[0] == token:  # its logits are here
                rows, guess = rows[1:], guess[1:]
            else:
                left = session.resume(whole) if self.lookup else [token]
                guess = looked_up(whole, min(self.lookup, room)) if self.lookup else []
                rows = session.take([*left, *guess], every=bool(guess))
                rows = rows[0, -len(guess) - 1 :] if guess else rows
            self.times.decode = session.seconds - before - self.times.prefill
            self.times.decoded += 1

    def _note(self, logits: np.ndarray, token: int) -> None:
        if self.logprobs is None:
            return
        found = logprobs(logits)
        count = min(self.logprobs, len(logits))
        most: list[int] = likeliest(logits, count).tolist() if count else []
        self.chances.append((float(found[token]), {t: float(found[t]) for t in most}))


def _begun(text: str, stops: Sequence[str]) -> int:
    """Number of characters at the end of `text` that begin one of `stops`."""
    longest = max(map(len, stops), default=1) - 1
    sizes = range(min(longest, len(text)), 0, -1)
    return next((n for n in sizes if any(s.startswith(text[-n:]) for s in stops)), 0)
