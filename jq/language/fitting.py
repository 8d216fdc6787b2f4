"""Weights quantized on a text, so that the products of a model change least."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import read_text
from jq.formats.arrays import NUMPY
from jq.formats.base import Encoding, get_format
from jq.formats.ggml import GgmlFormat
from jq.formats.tensor import QuantizedTensor
from jq.language.decoder import Config, load_decoder
from jq.language.decoder.gguf import file_names
from jq.language.tokenizer import Tokenizer, check_tokens, tokenizer_of_gguf
from jq.passes.recovery._fixed_scales import best_codes

PIECE = 256  # tokens of a piece of text


@dataclass
class Fitted:
    """Matrices of the layers, quantized on a text a layer at a time, when one is first asked for.

    Attributes:
        names: of the tensors that it has.
        done: blocks of each, by the number of the expert (0 where there are none).
    """

    names: set[str]
    layers: Iterator[dict[str, Any]]
    file_of: dict[str, str]
    done: dict[str, dict[int, np.ndarray]]

    @classmethod
    def on(
        cls,
        source: Path,
        texts: Sequence[Path],
        limit: int,
        kinds: Mapping[str, str | None],
        progress: Callable[[str, float | None], None],
    ) -> Fitted:
        from jq.language.decoder.layerwise import quantized_layers

        decoder = load_decoder(source)
        assert decoder.file is not None
        tokenizer = tokenizer_of_gguf(decoder.file.metadata, str(source))
        pieces = pieces_of(texts, tokenizer, decoder.config, limit)
        file_of = file_names(decoder.config)

        def encode(path: str, weight: np.ndarray, gram: np.ndarray) -> QuantizedTensor | None:
            kind = kinds[file_of[path]]
            return None if kind is None else fitted(kind, weight, gram)

        layers = quantized_layers(
            decoder, pieces, encode, lambda share: progress("quantize", share)
        )
        names = {theirs for ours, theirs in file_of.items() if ours.startswith("layers/")}
        return cls(names, layers, file_of, {})

    def take(self, name: str) -> np.ndarray:
        while name not in self.done:
            for path, leaf in next(self.layers).items():
                _, _, expert = path.partition("/experts/")
                number = int(expert.partition("/")[0] or 0)
                blocks = leaf.parts["blocks"]
                self.done.setdefault(self.file_of[path], {})[number] = blocks
        found = self.done.pop(name)
        return np.stack([found[i] for i in sorted(found)])


def pieces_of(
    texts: Sequence[Path], tokenizer: Tokenizer, config: Config, limit: int
) -> list[list[int]]:
    """At most `limit` pieces of text files, of `PIECE` tokens or as many as the context has."""
    tokens = [t for text in texts for t in tokenizer.codec.encode(read_text(text))]
    check_tokens([*tokenizer.first, *tokens], config.vocabulary)
    room = max(1, min(PIECE, config.context) - len(tokenizer.first))
    pieces = [
        [*tokenizer.first, *tokens[i : i + room]] for i in range(0, len(tokens) - room + 1, room)
    ][:limit]
    if not pieces:
        raise UserError(
            f"the text has {len(tokens)} tokens, {room} are needed", location=str(texts[0])
        )
    return pieces


def fitted(kind: str, weight: np.ndarray, gram: np.ndarray) -> QuantizedTensor:
    """A weight f32 [out, in] in a format of ggml, so that its products change least with inputs
    whose mean of x x^T is `gram` [in, in].

    The search for scales weighs the error of a column by the mean square of its inputs; codes are
    then chosen one column after the other, each making up for what those before it lost.
    """
    fmt = get_format(kind)
    assert isinstance(fmt, GgmlFormat)
    enc = Encoding(kind, weight.shape, fmt.default_block(weight.shape, -1))
    parts = fmt.encode(weight, enc, np.diag(gram))
    if not fmt.any_codes:  # rounding one after the other would aim between those that there are
        return QuantizedTensor(enc, parts)
    _, scale, offset = (
        None if a is None else np.asarray(a) for a in fmt.integer_parts(NUMPY, parts, enc)
    )
    assert scale is not None
    low = np.zeros_like(scale) if offset is None else offset
    codes = best_codes(weight.T, gram, scale.T, low.T, fmt.limits)
    return QuantizedTensor(enc, fmt.with_codes(parts, codes.T, enc))
