"""Activations of formats with elements and scales that are quantized and dequantized at once."""

import numpy as np
import pytest

import jq
from jq.formats import NUMPY, Encoding, get_format
from jq.ir import at
from jq.ir.build import last_of
from jq.ir.markers import dequantize, quantize_dynamic
from jq.ir.oracle.interpreter import interpret
from jq.passes.lower_markers import LowerMarkers
from tests.support.programs import evaluated
from tests.support.texts import load

RNG = np.random.default_rng(0)
FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4", "nvfp4", "mxint8", "float8_e4m3fn")


@pytest.mark.parametrize("name", FORMATS)
def test_no_codes_and_the_numbers_of_decoded_codes(name: str) -> None:
    """Also of NaN, infinity, denormals and rows of zeros; XLA's interpreter and NumPy agree."""
    program = load(
        "func.func public @main(%x: tensor<6x64xf32>) -> tensor<6x64xf32> {"
        " return %x : tensor<6x64xf32> }"
    )
    block = {"nvfp4": 16, "float8_e4m3fn": 0}.get(name, 32)
    packing = (("packing", "none"),) if get_format(name).element.bits < 8 else ()
    enc = Encoding(name, (6, 64), (1, block), options=packing)
    (x,) = program.body.arguments
    with at(last_of(program.body)):
        parts = quantize_dynamic(program, x, enc)
        program.return_values([dequantize(program, enc, parts, np.float32)])
    assert LowerMarkers().run(program, None)
    kinds = {str(v.type) for op in program.walk() for v in op.operation.results}
    assert not any("6x64xi8" in kind for kind in kinds), kinds
    values = RNG.standard_normal((6, 64)).astype(np.float32) * np.float32(
        [[1e-3, 1, 1e3]] * 2
    ).reshape(6, 1)
    values[1, 3], values[2, 40], values[3], values[4] = np.nan, np.inf, 0, 1e-40
    fmt = get_format(name)
    wanted = fmt.decode(NUMPY, fmt.quantize_dynamic(NUMPY, values, enc), enc)
    np.testing.assert_array_equal(interpret(program, values)[0], wanted)


@pytest.mark.parametrize("weights", ["int8", "uint8", "int4", "q4_0"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "mxfp8_e4m3", "mxfp4"])
def test_products_with_weights_in_integers(name: str, weights: str) -> None:
    """A side without integers is multiplied as floats: the numbers are those of Q/DQ."""
    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 64), (64, 8)))
    model = jq.Model(lambda p, x: x @ p, w, (x,))
    settings = {"activations.format": name, "weights.format": weights}
    levels = jq.rewrite(model, pipeline="int8-dynamic", settings=settings)
    told, found = (evaluated(levels[level], x)[0] for level in ("qdq", "integer"))
    assert np.abs(told - x @ w).max() < 0.3 * np.abs(x @ w).max()
    np.testing.assert_allclose(found, told, rtol=1e-5, atol=1e-5 * np.abs(told).max())
