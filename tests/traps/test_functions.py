"""Functions that IREE approximates badly: what `plain-functions` and `plain-powers` are for."""

from __future__ import annotations

import numpy as np
import pytest

from jq.iree.compiler import compile_module
from jq.iree.runtime import Executable
from tests.traps.helpers import trap

CASES = {"sine": (1e20, np.sin(1e20)), "cosine": (1e9, np.cos(1e9)), "tan": (1e5, np.tan(1e5))}


@trap
@pytest.mark.parametrize("name", CASES)
def test_the_compilers_own(name: str) -> None:
    found = of_compiler(name, CASES[name][0])
    np.testing.assert_allclose(found, np.float64(CASES[name][1]), rtol=1e-5)


@trap
def test_the_compilers_own_cube_root() -> None:
    assert np.isposinf(of_compiler("cbrt", np.inf)).all()


def of_compiler(name: str, x: float) -> np.ndarray:
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %y = stablehlo.{name} %x : tensor<4xf32>
      return %y : tensor<4xf32>
    }}"""
    (found,) = Executable.load(compile_module(text.encode()).vmfb)(np.full(4, x, np.float32))
    return found


@trap
def test_the_compilers_own_powers() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.power %x, %y : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    x, y = np.full(4, 1.6440632e08, np.float32), np.full(4, -4.602945, np.float32)
    (found,) = Executable.load(compile_module(text.encode()).vmfb)(x, y)
    np.testing.assert_allclose(found, x.astype(np.float64) ** y.astype(np.float64), rtol=1e-6)
