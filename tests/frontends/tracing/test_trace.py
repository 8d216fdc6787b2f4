"""Tracing: the program computes what the function does, and its parts have names."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import xla_metadata

from jq.base.errors import UserError
from jq.formats import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.frontends.model import Model
from jq.frontends.tracing import trace
from jq.ir import func
from tests.support.programs import RUNNERS

RNG = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) / np.sqrt(shape[0] if shape else 1)).astype(dtype)


def dense(params, x):
    return x @ params["kernel"] + params["bias"]


def dense_params(n, m, dtype=np.float32):
    return {"kernel": array(n, m, dtype=dtype), "bias": array(m, dtype=dtype)}


def names(program, op=None):
    """`jq.name` of the ops of one kind, of all by default."""
    ops = [o for o in program.walk() if "jq.name" in o.attributes]
    return [o.attributes["jq.name"].value for o in ops if op in (None, o.operation.name)]


def functions(program):
    return [op.name.value for op in program.module.body.operations if isinstance(op, func.FuncOp)]


DOT = "stablehlo.dot_general"


def test_weights_are_trailing_arguments_named_by_path(check):
    def fn(params, x):
        return dense(params["layers"][1], jax.nn.relu(dense(params["layers"][0], x)))

    program = check(fn, {"layers": [dense_params(8, 16), dense_params(16, 4)]}, array(3, 8))
    assert set(program.weights) == {
        "layers/0/kernel", "layers/0/bias", "layers/1/kernel", "layers/1/bias",
    }  # fmt: skip
    assert names(program, DOT) == ["layers/0/kernel", "layers/1/kernel"]
    assert [(i.name, i.shape, i.dtype) for i in program.inputs] == [("arg0", (3, 8), "float32")]
    assert [(o.name, o.shape, o.dtype) for o in program.outputs] == [("out0", (3, 4), "float32")]
    assert functions(program) == ["main"]
    assert len(set(names(program))) == len(names(program))


def test_scan_reads_its_stacked_weights_from_outside(check):
    def fn(params, x):
        def layer(x, p):
            with jax.named_scope("block"):
                return jax.nn.tanh(dense(p, x)), x.sum()

        return jax.lax.scan(layer, x, params["layers"])

    layers = {"kernel": array(3, 8, 8), "bias": array(3, 8)}
    program = check(fn, {"layers": layers}, array(2, 8))
    assert names(program, DOT) == ["layers/kernel"]
    loop = next(op for op in program.walk() if op.operation.name == "stablehlo.while")
    assert all("3x8x8" not in str(value.type) for value in loop.operands)
    dot = next(op for op in program.walk() if op.operation.name == DOT)
    assert dot.attributes["jq.scope"].value == "block/dot_general"


def test_nested_loops(check):
    def fn(params, x):
        def inner(i, x):
            return x @ params["w"][i]

        return jax.lax.fori_loop(0, 2, lambda _, y: jax.lax.fori_loop(0, 3, inner, y), x)

    program = check(fn, {"w": array(3, 4, 4)}, array(2, 4))
    assert names(program, DOT) == ["w"]


def test_a_weight_handed_through_two_loops_as_their_state(check):
    def fn(params, x):
        def inner(_, state):
            return state[0], state[1] @ state[0]

        return jax.lax.fori_loop(
            0, 2, lambda _, s: jax.lax.fori_loop(0, 3, inner, s), (params["w"], x)
        )

    program = check(fn, {"w": array(4, 4)}, array(2, 4))
    assert names(program, DOT) == ["w"]


def test_while_whose_condition_reads_a_constant_carry(check):
    def fn(params, x):
        def go(state):
            return state[0] < params["limit"]

        return jax.lax.while_loop(go, lambda s: (s[0] + 1, s[1] * params["w"]), (0, x))

    check(fn, {"limit": np.int32(4), "w": array(3)}, array(3))


def test_cond_and_switch(check):
    def fn(params, x, index):
        y = jax.lax.cond(x.sum() > 0, lambda x: dense(params["a"], x), lambda x: x * 2, x)
        return jax.lax.switch(index, [jnp.sin, lambda y: dense(params["a"], y), jnp.cos], y)

    params = {"a": dense_params(4, 4)}
    program = check(fn, params, array(2, 4), np.int32(1))
    assert names(program, DOT) == ["a/kernel", "a/kernel#2"]


def test_nested_jit_joins_names(check):
    @jax.jit
    def inner(params, x):
        with jax.named_scope("core"):
            return x @ x.T + params["bias"].sum()

    def fn(params, x):
        with jax.named_scope("outer"):
            return inner(params, x) + inner(params, x * 2)

    program = check(fn, dense_params(2, 2), array(3, 3))
    assert names(program, DOT) == ["outer/inner/core/dot_general", "outer/inner/core/dot_general#2"]


def test_pytrees_in_and_out(check):
    def fn(params, batch, scale):
        y = dense(params, batch["x"]) * scale
        return {"logits": y, "extra": (y.sum(), [batch["mask"]])}

    batch = {"mask": np.array([True, False]), "x": array(2, 4)}
    program = check(fn, dense_params(4, 4), batch, np.float32(2), input_names=["batch", "scale"])
    assert [i.name for i in program.inputs] == ["batch/mask", "batch/x", "scale"]
    assert [o.name for o in program.outputs] == ["extra/0", "extra/1/0", "logits"]


def test_tied_weights_are_one(check):
    table = jnp.asarray(array(16, 8))

    def fn(params, ids):
        return jnp.take(params["embed"], ids, axis=0, mode="clip") @ params["head"].T

    program = check(fn, {"embed": table, "head": table}, np.array([3, 1, 15], np.int32))
    assert list(program.weights) == ["embed"]
    assert names(program, "stablehlo.gather") == ["embed"]
    assert names(program, DOT) == ["embed#2"]


def test_bfloat16(check):
    params = dense_params(16, 8, jnp.bfloat16)
    program = check(dense, params, array(4, 16, dtype=jnp.bfloat16))
    assert program.weights["kernel"].dtype == jnp.bfloat16


def test_python_scalars_and_wide_types_follow_jax(check):
    def fn(params, x):
        return x * params["scale"] + params["table"].astype(x.dtype)

    params = {"scale": 2.0, "table": np.arange(4, dtype=np.float64), "unused": 3}
    program = check(fn, params, array(4, dtype=jnp.bfloat16))
    assert program.outputs[0].dtype == "bfloat16"
    assert set(program.weights) == {"scale", "table"}


def test_erf_and_top_k_stay_recognisable(check):
    def fn(params, x):
        y = jax.lax.erf(dense(params, x)) + jax.nn.gelu(x, approximate=False)
        return jax.lax.top_k(y + jax.nn.gelu(y, approximate=False), 2)

    program = check(fn, dense_params(4, 4), array(2, 4))
    composites = [
        o.attributes["name"].value for o in program.walk() if "composite" in o.operation.name
    ]
    assert composites == ["chlo.erf", "chlo.erfc", "chlo.erfc", "chlo.top_k"]
    assert len(functions(program)) == 4  # equal ones share a decomposition


def test_other_chlo_ops_and_composites_become_stablehlo(check):
    @functools.partial(jax.lax.composite, name="user.wrapped")
    def wrapped(x):
        return x @ x

    def fn(params, x):
        return jnp.sinh(wrapped(x)) + jax.scipy.special.digamma(x + 3) + params

    program = check(fn, array(3), array(3, 3))
    assert functions(program) == ["main"]
    assert {op.operation.name.partition(".")[0] for op in program.walk()} == {"stablehlo", "func"}
    assert names(program, DOT) == ["user.wrapped/dot_general"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_refused(dtype, bad):
    params = {"layer": {"kernel": array(4, 4).astype(dtype)}}
    params["layer"]["kernel"][2, 1] = bad
    with pytest.raises(UserError, match=r"NaN or infinity \[layer/kernel\]"):
        trace(Model(lambda p, x: x @ p["layer"]["kernel"], params, (array(2, 4).astype(dtype),)))


def test_weights_that_a_loop_joins_are_joined_before_it(check):
    """As in Flax's OptimizedLSTMCell."""

    def fn(params, x):
        def step(h, row):
            both = jnp.concatenate([params["a"], params["b"].T], 1)
            h = jnp.tanh(row @ both + jnp.tile(h, 2))[:4] * params["a"][0, :4]
            return h, h

        return jax.lax.scan(step, jnp.zeros(4), x)

    program = check(fn, {"a": array(3, 4), "b": array(4, 3)}, array(5, 3))
    (loop,) = (op for op in program.walk() if op.operation.name == "stablehlo.while")
    inside = [op.operation.name for op in loop.regions[1].blocks[0].operations]
    assert "stablehlo.concatenate" in {op.operation.name for op in program.body.operations}
    assert "stablehlo.transpose" not in inside


@pytest.mark.parametrize("masked", [lambda m, x: x + m.T, lambda m, x: jnp.where(x > 0, m, x)])
def test_a_mask_may_be_a_parameter(check, masked):
    mask = np.where(np.tri(3, dtype=bool), 0, -np.inf).astype(np.float32)
    check(lambda p, x: jax.nn.relu(masked(p["mask"], x)), {"mask": mask}, array(3, 3))
    with pytest.raises(UserError, match=r"NaN or infinity \[mask\]"):
        trace(Model(lambda p, x: masked(p["mask"], x), {"mask": mask * np.nan}, (array(3, 3),)))


def test_bounds_may_be_infinite(check):
    """As of layers that clip where a checkpoint says so."""
    bounds = {"low": np.float32(-np.inf), "high": np.float32(np.inf)}
    check(lambda p, x: jnp.clip(x, p["low"], p["high"]) / p["high"], bounds, array(3, 3))


def test_a_slice_of_the_whole_is_the_tensor(check):
    def fn(_, x, y, i):
        return jax.lax.dynamic_slice(x, (), ()), jax.lax.dynamic_slice(y, (i,), y.shape)

    program = check(fn, {}, array(), array(5), np.int32(3))
    assert "stablehlo.dynamic_slice" not in {op.operation.name for op in program.walk()}


def test_large_finite_weights_are_accepted(check):
    check(lambda p, x: x * p, np.full(4, 3e38, np.float32), array(4))


def test_a_model_that_cannot_be_traced_says_where():
    def fn(params, x):
        return params["w"] if x.sum() > 0 else x

    with pytest.raises(UserError, match="TracerBoolConversionError: Attempted boolean") as info:
        trace(Model(fn, {"w": array(3)}, (array(3),)))
    assert "test_trace.py:" in info.value.location
    assert "\n" not in str(info.value)
    assert "choose with jnp.where or jax.lax.cond" in str(info.value)


def test_a_model_that_computes_with_numpy_is_told_what_to_use():
    with pytest.raises(UserError, match=r"compute with jax\.numpy"):
        trace(Model(lambda p, x: np.tanh(np.asarray(x)), {}, (array(3),)))


def test_settings_among_the_parameters_are_refused():
    with pytest.raises(UserError, match=r"str is not an array \[activation\]"):
        trace(Model(lambda p, x: x, {"activation": "relu"}, (array(3),)))


def test_custom_calls_are_refused():
    with pytest.raises(UserError, match="jnp.linalg.cholesky is done by LAPACK"):
        trace(Model(lambda p, x: jnp.linalg.cholesky(x @ p), array(3, 3), (array(3, 3),)))


def test_symbolic_batch_is_traced_at_a_size():
    (b,) = jax.export.symbolic_shape("b")
    example = jax.ShapeDtypeStruct((2 * b, 4), np.float32)
    model = Model(dense, dense_params(4, 4), (example,))
    for size in (1, 3):
        assert trace(model, sizes={"b": size}).outputs[0].shape == (2 * size, 4)
    with pytest.raises(UserError, match=r"sizes=\{'b'"):
        trace(model)


@pytest.mark.parametrize("runner", RUNNERS)
def test_loops_branches_and_composites_run_everywhere(runner):
    """Captured weights in loops and branches, and kept composites, are understood by all."""

    def fn(params, ids):
        x = jnp.take(params["embed"], ids, axis=0)
        x, _ = jax.lax.scan(
            lambda x, p: (jax.nn.gelu(dense(p, x), approximate=False), None), x, params["layers"]
        )
        x = jax.lax.cond(x.sum() > 0, lambda x: x @ params["embed"].T, lambda x: x @ params["b"], x)
        return jax.lax.top_k(x, 3)

    params = {
        "embed": array(10, 8),
        "layers": {"kernel": array(3, 8, 8), "bias": array(3, 8)},
        "b": array(8, 10),
    }
    ids = np.array([3, 1, 4, 1], np.int32)
    values, indices = RUNNERS[runner](trace(Model(fn, params, (ids,))), [ids])
    expected = jax.jit(fn)(params, ids)
    # Ten float32 roundings in a row at most, each of half a unit in the last place of 1.
    np.testing.assert_allclose(values, expected[0], atol=20 * 2.0**-24)
    assert np.array_equal(indices, expected[1])


def test_quantized_leaves_stay_stored(check):
    w = array(8, 4)
    encoding = Encoding("int8", w.shape, (0, 1))
    stored = QuantizedTensor(encoding, get_format("int8").encode(w, encoding))
    params = {"dense": {"kernel": stored, "bias": array(4)}}
    x = array(2, 8)
    program = trace(Model(lambda p, x: dense(p["dense"], x), params, (x,)))
    assert list(program.weights) == ["dense/bias", "dense/kernel:codes", "dense/kernel:scale"]
    assert program.encodings["dense/kernel"]["format"] == "int8"
    assert names(program, DOT) == ["dense/kernel"]
    (result,) = RUNNERS["xla"](program, [x])
    np.testing.assert_allclose(result, x @ stored.decode() + params["dense"]["bias"], rtol=1e-5)


def test_tracing_changes_nothing_the_user_holds():
    params = dense_params(4, 4)
    program = trace(Model(dense, params, (array(2, 4),)))
    assert trace(program) is program
    assert np.shares_memory(program.weights["kernel"], params["kernel"])


def test_unusual_signatures(check):
    check(lambda p, x, y: (x, x, p), array(3), array(2), array(2))  # y is not used
    check(lambda p: p + 1, array(3))  # no inputs
    check(lambda p, x: jnp.ones(3), {}, array(2))  # neither is used
    check(lambda p, x, n: x * n, (), array(3, dtype=jnp.bfloat16), 2.0)  # a weak type
    check(lambda p, x: x + jax.random.normal(p, x.shape), jax.random.key(3), array(3))


def test_device_annotations_are_dropped(check):
    mesh = jax.make_mesh((1,), ("batch",), (jax.sharding.AxisType.Auto,))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))

    def fn(params, x):
        x = jax.lax.with_sharding_constraint(x @ params, spec)
        x, params = jax.lax.optimization_barrier((x, params))
        with xla_metadata.set_xla_metadata(key="value"):
            return jax.lax.fori_loop(0, 2, lambda _, x: x * 2, x)

    text = check(fn, array(4, 4), array(2, 4)).text()
    assert not any(word in text for word in ("sdy", "mhlo", "sharding", "barrier"))


def test_a_loop_that_changes_nothing(check):
    check(lambda p, x: jax.lax.while_loop(lambda x: x.sum() > 1e9, lambda x: x, x), {}, array(3))


def test_a_constant_does_not_take_a_parameters_name(check):
    table = array(20)
    program = check(lambda p, x: x * p["constant"] + table, {"constant": array(20)}, array(20))
    assert list(program.weights) == ["constant", "constant#2"]


@pytest.mark.parametrize("count", [1, 8, 40])  # inline, and as weights
def test_complex_constants(check, count):
    turns = np.exp(1j * np.arange(count)).astype(np.complex64)
    program = check(lambda p, x: jnp.real(turns * x) + jnp.abs((x + 2j).sum()), {}, array(count))
    assert len(program.weights) == (2 if count > 16 else 0)


def test_constants_that_only_what_is_empty_reads(check):
    table = jnp.arange(40.0).reshape(5, 8)
    assert not check(lambda _, x: x @ table + 1, {}, array(0, 5)).weights


def test_tensors_without_elements_are_constants(check):
    def fn(params, x):
        y = x @ params
        nothing = y[:0]
        runs = jax.lax.associative_scan(jnp.add, y, axis=0)  # slices and joins empty ends
        sums = nothing.sum(0), y[:, :0].max(1, initial=-2)
        return runs, jnp.concatenate([nothing, y, nothing]), nothing @ params.T, sums

    program = check(fn, array(8, 4), array(17, 8))
    for op in program.walk():
        if op.operation.name.startswith("stablehlo.") and op.operation.name != "stablehlo.constant":
            shapes = [v.type.shape for v in (*op.operands, *op.results)]
            assert all(0 not in shape for shape in shapes), op


@pytest.mark.parametrize("depth", [80, 150, 200, 500, 3000])
def test_deep_structures_are_refused_in_one_line(depth: int) -> None:
    def nested(x):
        for i in range(depth):
            x = [x] if i % 2 else {"a": x}
        return x

    with pytest.raises(UserError, match="outputs are nested more than 80 containers deep"):
        trace(Model(lambda _, x: nested(x), {}, (np.ones(2, np.float32),)))
    with pytest.raises(UserError, match="inputs are nested more than 80 containers deep"):
        trace(Model(lambda _, x: 1.0, {}, (nested(np.ones(2, np.float32)),)))


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_shardings_over_one_device_change_nothing(kind, check):
    """Types that say how an array is sharded, on inputs, in the middle and on the result."""
    kinds = (getattr(jax.sharding.AxisType, kind),)
    mesh = jax.make_mesh((1,), ("rows",), axis_types=kinds)
    spec = jax.sharding.PartitionSpec("rows", None)

    def fn(params, x):
        return params["head"] @ jax.reshard(x, spec) if kind == "Explicit" else params["head"] @ x

    with jax.set_mesh(mesh):
        program = check(fn, {"head": array(4, 4)}, array(4, 4))
    assert names(program, DOT) == ["head"] and "sdy" not in program.text()


def test_references_that_are_written_are_arrays(check):
    def fn(params, x):
        total = jax.new_ref(jnp.zeros_like(x))

        def step(i, carry):
            total[i] = carry.sum(axis=0)
            total[...] += x
            return carry + 1

        jax.lax.fori_loop(0, 3, step, x)
        return jax.freeze(total) @ params["head"]

    program = check(fn, {"head": array(4, 4)}, array(4, 4))
    assert names(program, DOT) == ["head"]
