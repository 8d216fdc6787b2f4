"""A new op is one rule: here the angle of two tensors, with codes on both sides."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir import OPS, ir, shape_of
from jq.ir.ops.base import Contraction, Role, codes_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 32)).astype(np.float32)
# At least 1, also when it is rounded: an angle is then off by no more than both sides are.
W = RNG.uniform(1.1, 2, (16, 32)).astype(np.float32)


@pytest.fixture(autouse=True)
def rule(registries: None) -> None:
    class Atan2(Contraction):
        """atan2(x, w), each of which is (codes - zero point) * scale."""

        op = "atan2"

        def roles(self, op: Any) -> tuple[Role, ...]:
            return Role(0, frozenset(), None), Role(1, frozenset(), None)

        def terms(self, op: Any) -> int:
            return 1

        def lower(self, program: Any, op: Any, markers: Any) -> Any:
            shape, real = shape_of(op.results[0]), []
            for x, given in zip(map(codes_of, markers), op.operands, strict=True):
                if x is None:
                    real.append(given)
                    continue
                wide = OPS.convert(x.codes, np.dtype(np.int32))
                if x.zero_point is not None:
                    wide = OPS.sub(wide, OPS.broadcast(x.zero_point, shape, (0, 1)))
                scale = OPS.broadcast(x.scale, shape, (0, 1))
                real.append(OPS.mul(OPS.convert(wide, np.dtype(np.float32)), scale))
            kind = op.results[0].type
            return ir.Operation.create("stablehlo.atan2", results=[kind], operands=real).result


MODEL = jq.Model(lambda p, x: jnp.arctan2(x, p["angle"]), {"angle": W}, (X,), calibration=[(X,)])
SETTINGS = {"op_types": ["atan2"], "weights.granularity": "per-tensor", "min_elements": 1}
WEIGHT_STEP = np.abs(W).max() / 127


def test_an_op() -> None:
    (row,) = jq.explain(MODEL, pipeline="int8-dynamic", settings=SETTINGS)["ops"]
    assert (row["name"], row["op"], row["decision"]) == ("angle", "atan2", "integer")

    compiled = jq.compile(MODEL, "int8-dynamic", settings=SETTINGS)
    (weight,) = compiled.audit().weights
    assert (weight.name, weight.format) == ("angle", "int8")
    assert "stablehlo.convert" in compiled.levels["integer"].text()
    # Half a step of either side, of 255 steps of a row and 127 of the weight.
    row_step = (X.max(1, keepdims=True) - X.min(1, keepdims=True)) / 255
    bound = row_step / 2 + WEIGHT_STEP / 2
    assert (np.abs(compiled(X) - np.arctan2(X, W)) <= bound * (1 + 1e-5) + 1e-6).all()


@pytest.mark.parametrize("pipeline", ["int8-weight-only", "int8-static"])
def test_the_op_in_other_pipelines(pipeline: str) -> None:
    """Passes that know of products of matrices ask the op, and leave it."""
    compiled = jq.compile(MODEL, pipeline, settings=SETTINGS)
    (weight,) = compiled.audit().weights
    assert (weight.name, weight.format) == ("angle", "int8")
    # A static range is symmetric, or wider than the data by less than a step.
    step = 0 if pipeline == "int8-weight-only" else 2 * np.abs(X).max() / 254
    bound = step / 2 + WEIGHT_STEP / 2
    assert (np.abs(compiled(X) - np.arctan2(X, W)) <= bound * (1 + 1e-5) + 1e-6).all()


def test_an_op_without_a_sum_of_its_own_is_refused_where_all_is_integer() -> None:
    with pytest.raises(jq.UserError, match="atan2 has no integer form"):
        jq.compile(MODEL, "int8-static-integer-only", settings=SETTINGS)
