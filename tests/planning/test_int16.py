"""`int8x16-static`: activations of 16 bits with weights of 8."""

from __future__ import annotations

import numpy as np

import jq
from jq.ir.oracle.xla import XlaExecutable

RNG = np.random.default_rng(0)
W = RNG.standard_normal((64, 48)).astype(np.float32)
X = RNG.standard_normal((4, 64)).astype(np.float32)


def test_products_are_exact_and_the_activation_costs_half_a_step():
    model = jq.Model(lambda p, x: x @ p["w"], {"w": W}, (X,), calibration=[(X,)])
    (op,) = jq.plan(model, pipeline="int8x16-static").ops
    kinds = {i: p.encoding.format for i, p in op.operands.items()}
    assert (op.decision, kinds) == ("integer", {0: "int16", 1: "int8"})
    levels = jq.rewrite(model, pipeline="int8x16-static")
    assert "xi64>" in levels["integer"].text()  # a sum of 64 bits holds any products of these
    (got,) = XlaExecutable(levels["integer"])(X)
    weights = levels["qdq"].weights
    decoded = weights["w:codes"].astype(np.float64) * weights["w:scale"]
    bound = np.abs(X).max() / 32767 / 2 * np.abs(decoded).sum(0) * (1 + 1e-3)
    assert (np.abs(got - X @ decoded) <= bound).all()
    compiled = np.asarray(jq.compile(model, pipeline="int8x16-static")(X))
    assert np.array_equal(compiled, got)


def test_edges_have_no_zero_point_where_the_device_has_none():
    """Residual sums are of 16 bits whatever the activations' format is."""
    params = {"a": W[:, :16], "b": W[:16, :16]}

    def fn(p, x):
        y = x @ p["a"]
        return (y + (y @ p["b"])) @ p["b"]

    model = jq.Model(fn, params, (X,), calibration=[(X,)])
    for target, schemes in (("ethos-u-like", {"symmetric"}), ("llvm-cpu", {"asymmetric"})):
        plan = jq.plan(model, pipeline="int8-static-integer-only", target=target)
        wide = [e.encoding for e in plan.edges.values() if e.encoding.format == "int16"]
        assert wide
        assert {encoding.scheme for encoding in wide} == schemes
