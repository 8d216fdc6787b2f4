"""A head in a folder whose config ties it to the embedding table, as `transformers` 5 reads it."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jq.language.decoder import load_decoder
from tests.support.decoders import write_folder


@pytest.mark.parametrize("same", [True, False])
def test_a_head_of_its_own_is_kept(same: bool, tmp_path: Path) -> None:
    folder = write_folder("llama", tmp_path / "model")
    path = folder / "model.safetensors"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    state = load_file(path)
    head = state["lm_head.weight"]
    if same:
        save_file({**state, "lm_head.weight": state["model.embed_tokens.weight"].copy()}, path)
    tree = load_decoder(folder).parameters(32)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(tree.get("head", {}))]
    assert shapes == ([] if same else [head.shape])
