"""Padded, packed and fully masked batches through attention, however the mask is spelled."""

from __future__ import annotations

import jax.numpy as jnp
import pytest


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_sample_of_masks() -> None:
    from suites import masked

    outcome = masked.run("int8-dynamic", jnp.float32)
    assert outcome.compared == 4 * 5 * 4 and not outcome.wrong, outcome
