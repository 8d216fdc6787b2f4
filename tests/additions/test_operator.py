"""A new ONNX operator is one function, whose signature is the operator's."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import jq
from jq.frontends.onnx.graph import Node
from jq.frontends.onnx.registry import OPERATORS, Array, Call, Given, Known, operator
from jq.frontends.onnx.walk import apply

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 32), (32, 16)))


def model(path, *, factor=0.5):
    """x @ w, of which every second column is scaled by an operator that no standard has."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("ScaleSome", ["h", "at"], ["y"], "some", domain="made.up", factor=factor),
    ]
    arrays = {"w": W, "at": np.arange(0, 16, 2)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 16))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("made.up", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def test_an_operator(tmp_path):
    path = model(tmp_path / "model.onnx")
    with pytest.raises(jq.UserError, match="ScaleSome"):
        jq.load_onnx(path)

    @operator("ScaleSome", domain="made.up")
    def scale_some(x: Array, at: Known, *, factor: float, node: Call) -> Array:
        if not 0 < factor <= 1:
            raise node.refuse(f"factor is {factor}", hint="give one above 0 and up to 1")
        return jnp.asarray(x).at[:, at].multiply(factor)

    want = X @ W
    want[:, ::2] *= 0.5
    loaded = jq.load_onnx(path)
    np.testing.assert_allclose(jq.compile(loaded, "float")(X)["y"], want, rtol=1e-5, atol=1e-5)
    (product,) = jq.explain(loaded, settings={"min_elements": 1})["ops"]
    assert product["decision"] == "integer"
    with pytest.raises(jq.UserError, match="factor is 2.0") as refused:
        jq.compile(jq.load_onnx(model(tmp_path / "wrong.onnx", factor=2.0)), "float")
    assert "some" in str(refused.value)


TAKES = "x[... K] w[K N / K halves*2] bias[N]? at!?; alpha beta=2.0 name?"


def test_an_operator_that_lists_what_it_takes():
    @operator("Listed", domain="made.up", takes=TAKES)
    def listed(o: Given) -> Array:
        assert o.name is None
        y = o.x @ o.w * o.alpha * o.beta
        return y if o.bias is None else y + o.bias

    def call(inputs, **attributes):
        op, names = OPERATORS["made.up", "Listed"], ("x", "w", "bias", "at")
        node = Node("Listed", "made.up", "", names[: len(inputs)], ("y",), attributes, "here")
        made = Call(node, 1, {**op.defaults, **attributes}, SimpleNamespace, print)
        return apply(op, made, inputs)[0]

    bias = np.ones(16, np.float32)
    np.testing.assert_allclose(call([X, W], alpha=0.5), X @ W, rtol=1e-5)
    want = 3 * (X @ W) + bias
    np.testing.assert_allclose(call([X, W, bias], alpha=1, beta=3.0), want, rtol=1e-5)
    for inputs, reason in (
        ([X, W.T], "its operand 'w' has shape [16, 32], and not [32, N]"),
        ([X, W, bias[1:]], "its operand 'bias' has shape [15], and not [16]"),
        ([X, None, bias], "its input 'w' is missing"),
        ([X, W, None, jnp.ones(1)], "its input 'at' depends on the model's inputs"),
    ):
        with pytest.raises(jq.UserError) as refused:
            call(inputs, alpha=1)
        assert reason in str(refused.value)
    with pytest.raises(jq.UserError, match="its attribute 'alpha' is missing"):
        call([X, W])
