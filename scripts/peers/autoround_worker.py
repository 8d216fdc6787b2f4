"""MiniLM's encoder with AutoRound, by a Python that has `auto_round`, `torch` and `transformers`.

    python autoround_worker.py MODEL.safetensors CALIBRATION.npz OUT.npz BITS GROUP [ITERATIONS]

`CALIBRATION.npz` has `ids` and `mask` i32[sentences, tokens]. `OUT.npz` gets each product's weight
as it is after quantization, f32[out, in], under its name in the checkpoint, and `OUT.float.npz` as
it is before. This file imports nothing of the project: it runs in an environment of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from auto_round import AutoRound  # type: ignore[import-not-found]
from safetensors.torch import load_file
from transformers import BertConfig, BertModel


def encoder(path: str) -> Any:
    """The network of a checkpoint, whose sizes its tensors tell; heads are 32 wide."""
    state = {name.removeprefix("bert."): a for name, a in load_file(path).items()}
    words, hidden = state["embeddings.word_embeddings.weight"].shape
    layers = len({name.split(".")[2] for name in state if name.startswith("encoder.layer.")})
    config = BertConfig(
        vocab_size=words,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        intermediate_size=len(state["encoder.layer.0.intermediate.dense.weight"]),
        attn_implementation="eager",
    )
    model = BertModel(config, add_pooling_layer=False)
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert not missing, missing
    return model.eval()


class Tokenizer:
    """AutoRound wants one, and only keeps it: the data are tokens already."""


def main(path: str, data: str, out: str, bits: str, group: str, iterations: str = "200") -> None:
    torch.manual_seed(0)
    model, given = encoder(path), np.load(data)
    np.savez(Path(out).with_suffix(".float.npz"), **weights(model))
    pairs = zip(*(torch.from_numpy(given[n]).long() for n in ("ids", "mask")), strict=True)
    rows = [{"input_ids": ids[None], "attention_mask": mask[None]} for ids, mask in pairs]
    quantizer = AutoRound(
        model,
        tokenizer=Tokenizer(),
        bits=int(bits),
        group_size=int(group),
        sym=False,
        iters=int(iterations),
        nsamples=len(rows),
        seqlen=given["ids"].shape[1],
        dataset=torch.utils.data.DataLoader(rows, batch_size=None),
        device_map="cpu",
        enable_torch_compile=False,
        amp=False,
    )
    found = quantizer.quantize()
    model = found[0] if isinstance(found, tuple) else found or model
    np.savez(out, **weights(model))


def weights(model: Any) -> dict[str, Any]:
    """Those of the products, under their names."""
    linear = (p for p in model.named_modules() if isinstance(p[1], torch.nn.Linear))
    return {f"{name}.weight": m.weight.detach().float().numpy() for name, m in linear}


if __name__ == "__main__":
    main(*sys.argv[1:])
