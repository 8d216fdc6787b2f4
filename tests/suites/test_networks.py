"""A sample of `scripts/suite.py differential --networks`: op by op, and what is wrong is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


def test_networks_hold_every_block_and_pipeline() -> None:
    from suites.differential.architectures import PIPELINES, SHAPES, network

    drawn = [network(seed) for seed in range(60)]
    assert {n.pipeline for n in drawn} == set(PIPELINES)
    assert {block.func.__name__ for n in drawn for block in n.blocks} == set(SHAPES)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [1, 5, 8, 14])
def test_drawn_networks(judged: Any, seed: int) -> None:
    from suites.differential.networks import Case, judge
    from suites.outcome import RIGHT

    (found,) = judged(judge, [Case(seed, iree=seed == 5)])
    assert found.verdict == RIGHT, found


@pytest.mark.parametrize("by", ["XLA", "NumPy"])
def test_an_op_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """By one place in one element, and by that op alone."""
    from suites.differential import networks as module

    def changed(results: list[np.ndarray]) -> list[np.ndarray]:
        at = next(i for i, a in enumerate(results) if a.dtype == np.int32 and a.size > 1)
        results[at] = results[at] + (np.arange(results[at].size) == 0).reshape(results[at].shape)
        return results

    class Wrong(module.XlaExecutable):
        def __call__(self, *inputs: Any) -> list[np.ndarray]:
            return changed(super().__call__(*inputs))

    def value(op: Any, step: Any, known: Any) -> np.ndarray:
        found = right(op, step, known)
        wide = found.dtype == np.int32 and found.size > 1
        return changed([found])[0] if wide else found

    right = module.value
    if by == "XLA":
        monkeypatch.setattr(module, "XlaExecutable", Wrong)
    else:
        monkeypatch.setattr(module, "value", value)
    drawn = module.network(1)
    program = module.jq.rewrite(drawn.model(), pipeline=drawn.pipeline, settings=module.SETTINGS)
    said: Iterator[str] = module.op_by_op(program["integer"], drawn.samples[0])
    (first, *others) = said
    assert first.startswith(f"{by}: stablehlo.")
    assert "1 of" in first
    assert by == "NumPy" or not others
