"""Padded, packed and fully masked batches through attention, however the mask is spelled."""

from __future__ import annotations

import jax.numpy as jnp
import pytest


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_sample_of_masks() -> None:
    from suites import masked

    outcome = masked.run("int8-dynamic", jnp.float32)
    assert outcome.compared == 4 * 6 * 4 and not outcome.wrong, outcome


@pytest.mark.filterwarnings("ignore")
def test_four_bits_of_activations_are_what_their_format_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One query is within 8 dB of its float value where it reads few keys."""
    from suites import masked

    monkeypatch.setattr(masked, "SHAPES", masked.SHAPES[-1:])
    outcome = masked.run("mxfp4", jnp.float32, spellings=["where"])
    assert outcome.compared == 4 and not outcome.wrong, outcome
