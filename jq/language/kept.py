"""A sequence kept in a file: a long prompt need not be taken in again.

A safetensors file: `tokens` i32[n], `model` u8[32] (a digest of what made the programs), and each
cache, cut to its n tokens.
"""

import hashlib
from pathlib import Path

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import read_input, written_whole
from jq.language.decoder.safetensors import read_file
from jq.language.saved_files import MANIFEST
from jq.language.shard import write_arrays
from jq.language.store import Store


def save(path: Path, store: Store, tokens: list[int], caches: list[np.ndarray]) -> None:
    """Writes the caches of a sequence, whole or not at all."""
    arrays = {"tokens": np.array(tokens, np.int32), "model": _model(store)}
    arrays |= {f"cache.{i}": array for i, array in enumerate(caches)}
    with written_whole(path) as temporary:
        write_arrays(temporary, arrays)


def load(path: Path, store: Store, context: int) -> tuple[list[int], list[np.ndarray]]:
    """The tokens and the caches of a file.

    Raises:
        UserError: it is none, or one of another model, or of other options.
    """
    held = read_file(path)
    model, tokens = held.pop("model", None), held.pop("tokens", None)
    if model is None or tokens is None or tokens.dtype != np.int32 or tokens.ndim != 1:
        raise UserError("this is no file of a prompt", location=str(path))
    if not np.array_equal(model, _model(store)) or not 0 < len(tokens) <= context:
        raise UserError(
            "the prompt was kept by another model, or with other options",
            location=str(path),
            hint="remove the file: it is written again",
        )
    names = [f"cache.{i}" for i in range(len(held))]
    if set(names) != held.keys():
        raise UserError("this is no file of a prompt", location=str(path))
    return tokens.tolist(), [held[name] for name in names]


def _model(store: Store) -> np.ndarray:
    """A digest of what changes caches: a folder is named by one, but for one that was moved."""
    sealed = store.folder / MANIFEST
    content = read_input(sealed) if store.sealed else store.folder.name.encode()
    return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
