"""A sample of `scripts/differential.py`: a graph of each kind, one of them through IREE."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
def test_drawn_graphs(seed: int) -> None:
    import differential

    assert differential.judged(seed, iree=seed == 3) == "equal"


def test_graphs_hold_products() -> None:
    from suites.graphs import KINDS, drawn

    ops = [drawn(seed, KINDS[seed % len(KINDS)])[1] for seed in range(60)]
    assert sum("dot" in names or "convolution" in names for names in ops) > 20
    assert len({name for names in ops for name in names}) > 18


def test_a_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import differential

    class Wrong(differential.XlaExecutable):
        def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
            (found,) = super().__call__(*inputs)
            found.reshape(-1)[-1:] += 1
            return [found]

    monkeypatch.setattr(differential, "XlaExecutable", Wrong)
    assert "XLA differs from interpreter: 1 of" in differential.judged(0, iree=False)
