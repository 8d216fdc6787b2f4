"""A fixed sample of the onnx package's node cases; `scripts/suite.py onnx_cases` runs all."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from jq.base.errors import UserError
from jq.frontends.onnx import operators as _  # noqa: F401  (defines them)
from jq.frontends.onnx.read import from_proto
from jq.frontends.onnx.walk import Walk, require_operators
from tests.frontends.onnx.node_cases import EXCLUDED, cases, excluded, run

STEP = 24
ALWAYS = re.compile("_dft|_m.._empty_set$")
SAMPLE = sorted({*list(cases())[7::STEP], *filter(ALWAYS.search, cases())})


@pytest.mark.parametrize("name", SAMPLE)
def test_a_node_case_passes_or_is_listed(name: str) -> None:
    if excluded(name):
        with pytest.raises((UserError, AssertionError)):
            run(cases()[name])
    else:
        run(cases()[name])


def test_every_exclusion_matches_a_case() -> None:
    listed = {excluded(name) for name in cases()}
    unused = [why for why in EXCLUDED.values() if why not in listed]
    assert unused in ([], ["the domain ai.onnx.ml"])


OLD = {
    "LeakyRelu": {"alpha": 0.2},
    "HardSigmoid": {},
    "DepthToSpace": {"blocksize": 2},
    "SpaceToDepth": {"blocksize": 2},
}


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("name", OLD)
def test_an_operator_is_what_a_later_version_defines(name: str, opset: int) -> None:
    """Operators that the standard defines for a later version alone, with the same attributes."""
    x = np.random.default_rng(opset).standard_normal((1, 4, 2, 6)).astype(np.float32)
    node = helper.make_node(name, ["x"], ["y"], name="here", **OLD[name])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy"]
    graph = helper.make_graph([node], "old", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    file = from_proto(model, Path("old.onnx"))
    require_operators(file)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    with jax.enable_x64(True):
        traced = jax.jit(lambda x: Walk(file).run(file.graph, [x])[0]).trace(x)
        assert "here" in traced.lower().as_text(debug_info=True)
        (got,) = Walk(file).run(file.graph, [jnp.asarray(x)])
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
