"""minilm on few sentences, for searches: 64 to calibrate and 32 to evaluate, in batches of 8.

Reproduces the figures of docs/how-to/search.md:

    jaxq search scripts/minilm_subset.py:model --budget "cosine>=0.995" -o mixed.toml
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from jq.frontends.model import batches

EVALUATION = 4  # batches

_whole = import_module("jq.models.zoo.minilm").build(batch=8, sequence=64)
model = replace(
    _whole, evaluation=(batches(_whole.evaluation) or [])[:EVALUATION], name="minilm_subset"
)
