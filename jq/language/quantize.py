"""A GGUF file in another format: `jaxq quantize IN.gguf OUT.gguf --type q4_k`; on a text
where one is given, so that the products of the model change least."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.store import Cache, Timer, file_digest
from jq.base.errors import LOG, UserError, check_known
from jq.base.progress import Progress, silent
from jq.base.system.files import read_text
from jq.formats import Encoding, Leaf, QuantizedTensor, get_format
from jq.formats.arrays import NUMPY
from jq.formats.ggml import GgmlFormat
from jq.frontends.gguf import load_gguf, open_gguf
from jq.frontends.gguf.types import TYPES
from jq.frontends.gguf.write import NewTensor, write_like
from jq.language.decoder import Config, load_decoder
from jq.language.decoder.gguf import file_names
from jq.language.tokenizer import Tokenizer, check_tokens, tokenizer_of_gguf
from jq.passes.recovery._solve import best_codes, best_factors

PIECE = 256  # tokens of a piece of text
Pieces = Sequence[Sequence[int]]


def _fitted(
    source: Path,
    texts: Sequence[Path],
    limit: int,
    kinds: Mapping[str, str | None],
    minutes: float,
    progress: Progress,
) -> dict[str, Callable[[], np.ndarray]]:
    """Functions that give the blocks of each matrix of the layers, by the names of their tensors:
    they are quantized on a text a layer at a time, when one is first asked for. What is found is
    kept in the user's cache directory, where a run that was ended finds it."""
    from jq.language.decoder.layerwise import Aim, quantized_layers

    decoder = load_decoder(source)
    assert decoder.file is not None
    tokenizer = tokenizer_of_gguf(decoder.file.metadata, str(source))
    timer = Timer()
    text: Pieces = pieces_of(texts, tokenizer, decoder.config, None if minutes else limit)
    file_of, model = file_names(decoder.config), [file_digest([source]), dict(kinds)]

    def encode(
        store: Cache, make: Callable[..., Any], path: str, aim: Aim, gram: np.ndarray
    ) -> QuantizedTensor | None:
        if (kind := kinds[file_of[path]]) is None:
            return None
        parts = timer.of(store, path, lambda: make(kind, aim(), gram).parts)
        fmt, shape = get_format(kind), (len(parts["blocks"]), len(gram))
        return QuantizedTensor(Encoding(kind, shape, fmt.default_block(shape, -1) or ()), parts)

    def layers_of(chosen: Pieces, read: Pieces, **told: Any) -> Iterator[dict[str, Leaf]]:
        """The layers quantized on the chosen pieces of text, while other pieces go through them."""
        make = fitted if read is chosen else _not_kept
        own = partial(encode, Cache("recovery", [model, chosen]), make)
        return quantized_layers(decoder, read, own, **told)

    text = _best(layers_of, timer, text, limit, minutes, progress) if minutes else text
    layers = layers_of(text, text)
    done: dict[str, dict[int, np.ndarray]] = {}  # by the number of the expert, 0 where none are

    def take(name: str) -> np.ndarray:
        while name not in done:
            for path, leaf in next(layers).items():
                _, _, expert = path.partition("/experts/")
                number = int(expert.partition("/")[0] or 0)
                assert isinstance(leaf, QuantizedTensor)
                done.setdefault(file_of[path], {})[number] = leaf.parts["blocks"]
        found = done.pop(name)
        return np.stack([found[i] for i in sorted(found)])

    names = [theirs for ours, theirs in file_of.items() if ours.startswith("layers/")]
    return {name: partial(take, name) for name in names if kinds.get(name)}


def _not_kept(*given: Any) -> Any:
    what = "with minutes, quantized matrices are kept in the cache directory, which keeps none"
    raise UserError(what, hint="set XDG_CACHE_HOME to a folder with room that can be written")


def _best(
    layers_of: Any, timer: Timer, pieces: Pieces, limit: int, minutes: float, progress: Progress
) -> Pieces:
    """The first `limit` pieces of text, or twice as many, again and again while the next turn may
    end within the minutes: those whose last layer is closest to the model's on pieces at the end
    that no turn quantizes on."""
    count = max(1, min(limit, len(pieces)) // 8)
    rest, held = pieces[:-count], pieces[-count:]
    if not rest:
        raise UserError("minutes need a longer text: two pieces at least, one to measure on")
    spent, size, errors = 0.0, limit, dict[int, float]()
    while True:
        timer.restart()
        chosen, last = rest[:size], dict[int, Any]()
        told = partial(progress, f"{len(chosen)} pieces of text")
        deque(layers_of(chosen, chosen, progress=told), 0)
        spent += (turn := timer.seconds)
        deque(layers_of(chosen, held, reached=last.__setitem__), 0)
        ours, theirs = last[max(last)]
        lost, whole = (np.square(a).sum(axis=-1) for a in (ours - theirs, theirs))
        errors[size] = float((lost / np.maximum(whole, 1e-30)).mean())
        LOG.info("%d pieces, %.1f min: error %.4g", size, spent / 60, errors[size])
        if size >= len(rest) or spent + 2 * turn > 60 * minutes:
            return rest[: min(errors, key=lambda n: errors[n])]
        size *= 2


def pieces_of(
    texts: Sequence[Path], tokenizer: Tokenizer, config: Config, limit: int | None
) -> list[list[int]]:
    """At most `limit` pieces of text files, of `PIECE` tokens or as many as the context has."""
    if limit is not None and limit < 1:
        raise UserError(f"{limit} pieces of text are not possible", hint="give 1 or more")
    tokens = [t for text in texts for t in tokenizer.codec.encode(read_text(text))]
    check_tokens([*tokenizer.first, *tokens], config.vocabulary)
    room = max(1, min(PIECE, config.context) - len(tokenizer.first))
    starts = range(0, len(tokens) - room + 1, room)[:limit]
    if not starts:
        told = f"the text has {len(tokens)} of the {room} tokens that a piece of it needs"
        raise UserError(told, location=str(texts[0]))
    return [[*tokenizer.first, *tokens[i : i + room]] for i in starts]


def fitted(kind: str, weight: np.ndarray, gram: np.ndarray) -> QuantizedTensor:
    """A weight f32 [out, in] in a format of ggml, so that its products change least with inputs
    whose mean of x x^T is `gram` [in, in]. The search for scales weighs the error of a column by
    the mean square of its inputs; codes are then chosen one column after the other, each making up
    for what those before it lost, and last the float16 scales for these codes."""
    fmt = get_format(kind)
    assert isinstance(fmt, GgmlFormat)
    enc = Encoding(kind, weight.shape, (1, fmt.block))
    parts = fmt.encode(weight, enc, np.diag(gram))
    given = fmt.integer_parts(NUMPY, parts, enc)
    _, scale, offset = (None if a is None else np.asarray(a) for a in given)
    assert scale is not None
    low = np.zeros_like(scale) if offset is None else offset
    codes = best_codes(weight.T, gram, scale.T, low.T, fmt.near, fmt.together)
    parts = fmt.with_codes(parts, codes.T, enc)
    values = np.asarray(fmt.decode(NUMPY, parts, enc), np.float32)
    factors = best_factors(values.T, weight.T, gram, fmt.block)
    return QuantizedTensor(enc, {"blocks": fmt.times(parts["blocks"], factors.T)})


# A type that can be asked for, and its number as `general.file_type` (all layers in one type).
FILE_TYPES = {"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9}
FILE_TYPES |= {"q2_k": 10, "q3_k": 11, "q4_k": 14, "q5_k": 16, "q6_k": 18}
FILE_TYPES |= {"iq2_xxs": 19, "iq2_xs": 20, "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25, "iq3_s": 26}
FILE_TYPES |= {"iq2_s": 28, "iq4_xs": 30, "iq1_m": 31, "tq1_0": 36, "tq2_0": 37}
# What a row takes that 256 does not divide: the next better type in blocks of 32.
_SHORTER = dict.fromkeys(FILE_TYPES, "iq4_nl") | {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
_TYPES = {t.format: t for t in TYPES.values()}
_TABLES = ("token_embd.weight", "output.weight")
_LEAST = "q6_k"  # of the tables: every token reads them


def quantize(
    source: Path,
    out: Path,
    kind: str,
    importance: Sequence[Path] = (),
    limit: int = 64,
    progress: Progress = silent,
    minutes: float = 0.0,
) -> list[dict[str, Any]]:
    """Writes the model with its matrices in a format of ggml; of each tensor its `name`, its type
    `before` and `after`, and its `bytes`.

    Norms, biases, positions and routers stay, and so does what no format divides; the embedding and
    the head get `q6_k` where the wanted type has fewer bits. A tensor at a time is decoded.

    Args:
        kind: the format, one of `FILE_TYPES`.
        importance: text files; scales and codes of the layers' matrices are then chosen so that
            products change least on at most `limit` pieces of 256 tokens (see `fitted`).
        minutes: in which more and more pieces are tried, as long as there is text (`_best`).

    Raises:
        UserError: the file or the type is not known, or the text is too short."""
    check_known("type", kind, FILE_TYPES)
    if out.exists() and out.samefile(source):
        raise UserError("the file would take its own place", location=str(out), hint="another name")
    file, (data, header) = load_gguf(source), open_gguf(source)
    if file.metadata.get("split.count", 1) != 1:
        hint = "join them: llama-gguf-split --merge FIRST_PART JOINED.gguf"
        raise UserError("this is a part of a model", location=str(source), hint=hint)
    kinds = {name: _wanted(name, leaf, kind) for name, leaf in file.tensors.items()}
    if minutes and not importance:
        raise UserError("minutes need a text to quantize on", hint="--importance TEXT")
    given = source, importance, limit, kinds, minutes, progress
    fitted = _fitted(*given) if importance else {}
    rows, tensors = [], []
    for name, leaf in file.tensors.items():
        before, after = header.tensors[name].type.name, kinds[name]
        type_ = _TYPES[after].name if after else before
        made = fitted.get(name, partial(_encoded, leaf, after))
        tensor = NewTensor(name, tuple(leaf.shape), type_, made)
        tensors.append(tensor)
        rows.append({"name": name, "before": before, "after": type_, "bytes": tensor.nbytes})
    changes = {"general.file_type": FILE_TYPES[kind], "general.quantization_version": 2}
    write_like(out, data, header, tensors, changes, partial(progress, "quantize"))
    return rows


def _wanted(name: str, leaf: Any, kind: str) -> str | None:
    """The format of a tensor; None for one that stays."""
    matrix = len(leaf.shape) >= 2 and name.endswith(".weight")
    stays = "norm" in name or "ffn_gate_inp" in name or name.startswith(("rope", "position"))
    if not matrix or stays:
        return None
    if name in _TABLES and _bits(kind) < _bits(_LEAST):
        kind = _LEAST
    for choice in filter(None, (kind, _SHORTER.get(kind))):
        block = get_format(choice).default_block(leaf.shape, -1)
        if block and leaf.shape[-1] % block[-1] == 0:
            return choice
    return None


def _bits(kind: str) -> float:
    return _TYPES[kind].bytes / _TYPES[kind].block


def _encoded(leaf: Any, kind: str | None) -> np.ndarray:
    """The data of a tensor in a format of ggml, or as they are."""
    if kind is None:
        return leaf.parts["blocks"] if isinstance(leaf, QuantizedTensor) else leaf
    values, fmt = np.asarray(leaf, np.float32), get_format(kind)
    block = fmt.default_block(values.shape, -1)
    assert block is not None
    return fmt.encode(values, Encoding(kind, values.shape, block))["blocks"]
