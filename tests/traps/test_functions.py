"""Functions that IREE approximates badly: what `plain-functions` and `plain-powers` are for."""

from __future__ import annotations

import numpy as np
import pytest

from jq.iree.compiler import compile_module
from jq.iree.runtime import Executable

CASES = {
    "sine": (1e20, np.sin(1e20)),
    "cosine": (1e9, np.cos(1e9)),
    "tan": (1e5, np.tan(1e5)),
    "cbrt": (np.inf, np.inf),
}


@pytest.mark.xfail(reason="IREE's approximations hold for small numbers", strict=True)
@pytest.mark.parametrize("name", CASES)
def test_the_compilers_own(name: str) -> None:
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %y = stablehlo.{name} %x : tensor<4xf32>
      return %y : tensor<4xf32>
    }}"""
    x, exact = CASES[name]
    (found,) = Executable.load(compile_module(text.encode()).vmfb)(np.full(4, x, np.float32))
    np.testing.assert_allclose(found, np.float64(exact), rtol=1e-5)


@pytest.mark.xfail(reason="IREE's powers are off by up to 90 last places", strict=True)
def test_the_compilers_own_powers() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.power %x, %y : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    x, y = np.full(4, 1.6440632e08, np.float32), np.full(4, -4.602945, np.float32)
    (found,) = Executable.load(compile_module(text.encode()).vmfb)(x, y)
    np.testing.assert_allclose(found, x.astype(np.float64) ** y.astype(np.float64), rtol=1e-6)
