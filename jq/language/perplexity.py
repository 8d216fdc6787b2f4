"""Perplexity of a model on a text, and its distance from another: KL divergence, and the number of
tokens that change under greedy decoding."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.progress import Progress, silent
from jq.base.system.files import read_text
from jq.language.generation import Model
from jq.language.sampling import logprobs
from jq.language.tokenizer import check_tokens

PIECE = 16  # tokens whose logits are held at once


@dataclass
class Perplexity:
    """Measures of a text; `kl` is the mean over tokens of the Kullback-Leibler divergence from the
    other model's distribution to this one's, in nats. Without another model its fields are None."""

    tokens: int  # that were foreseen, given those before them in their piece of the text
    perplexity: float  # exp of the mean of -log p(token)
    kl: float | None = None
    changed: int | None = None  # tokens whose most likely one differs between the two
    kl_largest: float | None = None  # of one token
    other_perplexity: float | None = None

    @property
    def agreement(self) -> float | None:
        """The share of tokens whose most likely one is the same in both."""
        return None if self.changed is None else 1 - self.changed / self.tokens

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    model: Model,
    files: Sequence[Path],
    other: Model | None = None,
    limit: int | None = None,
    progress: Progress = silent,
    window: int | None = None,
) -> Perplexity:
    """Over at most `limit` tokens of text files, cut into pieces as long as the model's context, or
    the `window`; a piece begins anew. `other`: a model with the same tokens, to compare with.

    Raises:
        UserError: there are not two tokens of text, one is none of the model's, or the two models
            have other tokens."""
    if limit is not None and limit < 2:
        raise UserError(f"a limit of {limit} tokens is not possible", hint="give 2 or more")
    texts = [read_text(file) for file in files]
    tokens = [t for text in texts for t in model.tokenizer.codec.encode(text)]
    if other is not None:
        same = tokens == [t for text in texts for t in other.tokenizer.codec.encode(text)]
        same &= model.config.vocabulary == other.config.vocabulary
        if not same or model.tokenizer.first != other.tokenizer.first:
            what = f"it has other tokens than {model.path}, which it cannot be compared with"
            raise UserError(what, location=str(other.path))
    tokens, first = tokens[:limit], list(model.tokenizer.first)
    check_tokens([*first, *tokens], model.config.vocabulary)
    contexts = [m.options.context for m in (model, other) if m is not None]
    room = min(contexts if window is None else [window, *contexts]) - len(first)
    if len(tokens) < 2 or room < 2:
        raise UserError("two tokens of text are needed at least", location=str(files[0]))
    surprise, others, divergence = ([np.zeros(0)] for _ in range(3))  # of each token
    changed = 0
    for start in range(0, len(tokens) - 1, room):
        piece = first + tokens[start : start + room]
        sessions = [m.session() for m in (model, other) if m is not None]
        for i in range(0, len(piece) - 1, PIECE):
            part = piece[i : min(i + PIECE, len(piece) - 1)]
            skip = max(0, len(first) - 1 - i)  # nobody foresees the tokens in front
            own, *rows = [logprobs(s.take(part, every=True)[0])[skip:] for s in sessions]
            right = np.arange(len(own)), np.array(piece[i + 1 : i + 1 + len(part)])[skip:]
            surprise.append(-own[right])
            for theirs in rows:
                others.append(-theirs[right])
                divergence.append((np.exp(theirs) * (theirs - own)).sum(axis=-1))
                changed += int((theirs.argmax(-1) != own.argmax(-1)).sum())
        progress("text", min(1.0, (start + room) / len(tokens)))
    found = np.concatenate(surprise)
    with np.errstate(over="ignore"):  # logits may be out of all bounds
        measured = Perplexity(len(found), float(np.exp(found.mean())))
        if other is not None:
            apart = np.concatenate(divergence)
            measured.kl, measured.changed = float(apart.mean()), changed
            measured.kl_largest = float(apart.max(initial=0))
            measured.other_perplexity = float(np.exp(np.concatenate(others).mean()))
    return measured
