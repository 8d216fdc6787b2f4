"""Audits of convolutions whose weights the compiler's program holds more tightly than was meant."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jq

RNG = np.random.default_rng(0)
CASES = {
    # Rows of 3 codes take 2 bytes in the format, the kernel packs all of them together.
    "int4-dynamic": (("NCHW", "OIHW", "NCHW"), (16, 8, 3, 3), (1, 8, 9, 9)),
    # Codes of 8 bits are widened to 16 inside of the product.
    "int8x16-static": (("NDHWC", "DHWIO", "NDHWC"), (3, 3, 3, 4, 16), (1, 5, 5, 5, 4)),
}


@pytest.mark.parametrize("pipeline", CASES)
def test_no_less_is_stored_than_is_claimed(pipeline: str) -> None:
    layout, shape, of_input = CASES[pipeline]

    def apply(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        ones = (1,) * (len(shape) - 2)
        return jax.lax.conv_general_dilated(x, p["w"], ones, "SAME", dimension_numbers=layout)

    params = {"w": RNG.standard_normal(shape).astype(np.float32)}
    data = [(RNG.standard_normal(of_input).astype(np.float32),)]
    model = jq.Model(apply, params, data[0], calibration=data)
    audit = jq.compile(model, pipeline, settings=["recovery=false"], measure=False).audit()
    assert audit.verified, audit.warnings
