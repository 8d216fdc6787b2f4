"""Every pair of types that Qwix can give weights and activations: its codes, kept to the bit."""

from __future__ import annotations

from itertools import product

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.formats import NUMPY, get_format
from jq.formats.affine import Affine
from jq.ir.encodings import encoding_in
from tests.support.programs import evaluated

qwix = pytest.importorskip("qwix")
# Qwix asks Flax for a name that Flax has given up.
pytestmark = pytest.mark.filterwarnings("ignore:'VariableState':DeprecationWarning")

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((4, 64)), jnp.float32)
# Types of weights, with tiles, and of activations; XLA has no product of int4 and int4.
WHOLE = ("int2", "int4", "int8", "uint4", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "nf4")
PAIRS = [
    *((w, None, a) for w, a in product(WHOLE, (None, "int8", "float8_e4m3fn"))),
    *((w, 32, a) for w, a in product((*WHOLE[1:3], "nf4", "mxfp4", "mxfp8"), (None, "int8"))),
]


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(16)(nn.relu(nn.Dense(96)(x)))


def quantized(weights, tile, activations):
    """Model and parameters as Qwix makes them."""
    kinds = {"weight_qtype": weights, "tile_size": tile, "act_qtype": activations}
    rule = qwix.QuantizationRule(module_path=".*", **{k: v for k, v in kinds.items() if v})
    net = qwix.quantize_model(Net(), qwix.PtqProvider([rule]))
    start = Net().init(jax.random.key(0), X)["params"]
    shapes = jax.eval_shape(net.init, jax.random.key(0), X)["params"]
    return net, qwix.quantize_params(start, shapes)


def model_of(pairs):
    """All of them in one model, a dict of outputs; its parameters, and what Qwix computes."""
    nets = {"-".join(map(str, pair)): quantized(*pair) for pair in pairs}

    def forward(params, x):
        return {name: net.apply({"params": params[name]}, x) for name, (net, _) in nets.items()}

    params = {name: p for name, (_, p) in nets.items()}
    return jq.Model(forward, params, (X,)), params, jax.jit(forward)(params, X)


def test_codes_and_results():
    assert len(PAIRS) >= 24
    model, params, want = model_of(PAIRS)
    levels = jq.rewrite(model, pipeline="float")
    for name in params:
        for layer in ("Dense_0", "Dense_1"):
            path = f"{name}/{layer}/kernel/array/qvalue"
            theirs = np.asarray(params[name][layer]["kernel"].array.qvalue)
            assert np.array_equal(codes(levels["qdq"], path), bits(theirs)), path
    got = evaluated(levels["integer"], np.asarray(X))
    for (name, ref), result in zip(sorted(want.items()), got, strict=True):
        # Sums in another order, and a code of an activation at a tie that a last place decides.
        loose = 1e-5 if name.endswith("None") else 2.0**-7
        assert np.abs(result - ref).max() <= loose * np.abs(ref).max(), name


def test_integer_products_have_kernels():
    model, _, want = model_of([("int8", None, "int8"), ("int4", None, "int8")])
    compiled = jq.compile(model, pipeline="float")
    got = compiled(X)
    assert all(np.abs(got[n] - r).max() <= 2.0**-7 * np.abs(r).max() for n, r in want.items())
    products = compiled.audit().contractions
    assert {(p.lhs, p.rhs, p.acc) for p in products} == {("i8", "i8", "i32")}
    assert all(p.kernel for p in products)
    rows = jq.plan(model, pipeline="float").ops
    assert {op.decision for op in rows} == {"integer"}


def bits(codes: np.ndarray) -> np.ndarray:
    """Integers as they are, the bytes of floats."""
    return codes.astype(np.int8) if "int" in codes.dtype.name else codes.view(np.int8)


def codes(program, path) -> np.ndarray:
    entry = program.encodings[path]
    enc, parts = encoding_in(entry), {k: program.weights[f"{path}:{k}"] for k in entry["parts"]}
    fmt = get_format(enc.format)
    shift = 8 if enc.format == "uint4" else 0
    found = np.asarray(fmt.codes(NUMPY, parts, enc))
    assert isinstance(fmt, Affine) or not shift
    return (found + shift).astype(np.int8)
