"""A fixed sample of layers and functions; `scripts/layers.py` runs all of them."""

from __future__ import annotations

from functools import partial

import pytest

MODULES = ("nnx", "linen", "equinox", "keras", "functions")
STRIDE = {"float": 24, "int8-dynamic": 40}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_layer_is_a_case_or_has_a_reason(module):
    from suites import layers

    assert layers.table(module).missing() == []


@pytest.mark.parametrize("pipeline", STRIDE)
def test_a_sample_of_layers_is_right(pipeline):
    from suites import layers, worker
    from suites.outcome import RIGHT

    names = [(module, name) for module in MODULES for name in layers.table(module).cases]
    judge = partial(layers.judge, pipeline=pipeline)
    chosen = sorted(names)[:: STRIDE[pipeline]]
    found = list(worker.run(chosen, judge, lambda name: name, together=len(chosen)))
    assert len(found) == len(chosen)
    assert [one for one in found if one.verdict != RIGHT] == []
