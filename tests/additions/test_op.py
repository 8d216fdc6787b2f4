"""A new op is one rule: here the difference of two tensors, with codes on both sides."""

from typing import Any

import numpy as np

import jq
from jq.ir import shape_of
from jq.ops.base import Contraction, Role, codes_of
from jq.ops.integer import OPS

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal((16, 32)).astype(np.float32) for _ in range(2))


def test_an_op() -> None:
    class Subtract(Contraction):
        """x - w = (x codes - zero point) * x scale - (w codes - zero point) * w scale."""

        op = "subtract"

        def roles(self, op: Any) -> tuple[Role, ...]:
            return Role(0, frozenset(), None), Role(1, frozenset(), None)

        def terms(self, op: Any) -> int:
            return 1

        def lower(self, program: Any, op: Any, markers: Any) -> Any:
            sides = [codes_of(m) for m in markers]
            if None in sides:
                return None
            shape, real = shape_of(op.results[0]), []
            for x in sides:
                wide = OPS.convert(x.codes, np.dtype(np.int32))
                if x.zero_point is not None:
                    wide = OPS.sub(wide, OPS.broadcast(x.zero_point, shape, (0, 1)))
                scale = OPS.broadcast(x.scale, shape, (0, 1))
                real.append(OPS.mul(OPS.convert(wide, np.dtype(np.float32)), scale))
            return OPS.sub(*real)

    model = jq.Model(lambda p, x: x - p["shift"], {"shift": W}, (X,))
    settings = {"op_types": ["subtract"], "weights.granularity": "per-tensor"}
    (row,) = jq.explain(model, pipeline="int8-dynamic", settings=settings)["ops"]
    assert (row["name"], row["op"], row["decision"]) == ("shift", "subtract", "integer")

    compiled = jq.compile(model, "int8-dynamic", settings=settings)
    (weight,) = compiled.audit().weights
    assert (weight.name, weight.format) == ("shift", "int8")
    assert "stablehlo.convert" in compiled.levels["integer"].text()
    # Half a step of either side, of 255 steps of a row and 127 of the weight.
    row_step = (X.max(1, keepdims=True) - X.min(1, keepdims=True)) / 255
    bound = row_step / 2 + np.abs(W).max() / 127 / 2
    assert (np.abs(compiled(X) - (X - W)) <= bound * (1 + 1e-5) + 1e-6).all()
