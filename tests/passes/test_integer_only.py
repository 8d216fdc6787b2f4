"""Integer-only programs: no float between codes, equal bits on all runners, close to float."""

from __future__ import annotations

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st

import jq
from jq import api
from jq.base.errors import UserError
from jq.ir.build import NAME, string_attr
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.integer.verify_integer import offenders
from tests.support import stablehlo_numpy
from tests.support.noise import bound, error
from tests.support.programs import assert_same_bits, evaluated, run_iree

pytestmark = pytest.mark.usefixtures("quick_xla")

PIPELINE, TARGET = "int8-static-integer-only", "npu-int8"
ROWS, COLUMNS = 4, 8
RNG = np.random.default_rng(0)
MASK = np.tri(ROWS, COLUMNS, 3, bool)
PARAMS = {
    f"w{i}": (RNG.standard_normal((COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)).astype(np.float32)
    for i in range(4)
} | {f"b{i}": RNG.standard_normal(COLUMNS).astype(np.float32) for i in range(4)}


def layer_norm(p, i, x):
    c = x - x.mean(-1, keepdims=True)
    return c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * p[f"b{i}"] + p[f"b{3 - i}"]


def rms_norm(p, i, x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p[f"b{i}"]


ONE = {
    "dense": lambda p, i, x: x @ p[f"w{i}"] + p[f"b{i}"],
    "dense_relu": lambda p, i, x: jax.nn.relu(x @ p[f"w{i}"] + p[f"b{i}"]),
    "dense_relu6": lambda p, i, x: jnp.clip(x @ p[f"w{i}"], 0, 6),
    "gelu": lambda p, i, x: jax.nn.gelu(x, approximate=i % 2 == 0),
    "silu": lambda p, i, x: jax.nn.silu(x),
    "tanh": lambda p, i, x: jnp.tanh(x),
    "exp": lambda p, i, x: jnp.exp(-jnp.abs(x)),
    "curves": lambda p, i, x: jnp.arctan(x) + jnp.cbrt(x) + jnp.tan(x / 8) + x % 1.5,
    "elu": lambda p, i, x: jax.nn.elu(x),
    "sign": lambda p, i, x: (x > i / 4).astype(np.float32),
    "softmax": lambda p, i, x: jax.nn.softmax(x, axis=-1 - i % 2),
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "unit": lambda p, i, x: x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12),
    "log_sum": lambda p, i, x: x - jax.nn.logsumexp(x, axis=1, keepdims=True),
    "masked": lambda p, i, x: jax.nn.softmax(jnp.where(MASK, x, -1e9)),
    "channels": lambda p, i, x: x * p[f"b{i}"] + p[f"b{3 - i}"],
    "mean": lambda p, i, x: jnp.broadcast_to(x.mean(0, keepdims=True), x.shape),
    "sort": lambda p, i, x: jnp.sort(x, axis=i % 2, descending=i > 1),
    "max": lambda p, i, x: jnp.broadcast_to(x.max(1, keepdims=True), x.shape),
    "shift": lambda p, i, x: jnp.pad(x[:, 1:], ((0, 0), (0, 1))),
    "turn": lambda p, i, x: x.reshape(COLUMNS, ROWS).T,
}
TWO = {
    "add": lambda p, i, x, y: x + y,
    "add_relu": lambda p, i, x, y: jax.nn.relu(x - y),
    "multiply": lambda p, i, x, y: x * y,
    "divide": lambda p, i, x, y: x / (jnp.abs(y) + 1),
    "larger": lambda p, i, x, y: jnp.maximum(x, y) if i % 2 else jnp.minimum(x, y),
    "choose": lambda p, i, x, y: jnp.where(MASK, x, y if i % 2 else 0.5),
    "join": lambda p, i, x, y: jnp.concatenate([x[:, :3], y[:, 3:]], 1),
    "join_strided": lambda p, i, x, y: jnp.concatenate([x[:, ::2], y[:, :4]], 1),
}
FLOAT_FUNCTIONS = {
    f"stablehlo.{name}" for name in ("tanh", "exponential", "logistic", "rsqrt", "composite")
}
STEPS = [(name, 1) for name in ONE] + [(name, 2) for name in TWO]


@st.composite
def graphs(draw):
    """Steps: name, number, and which earlier values it reads; the last value is the result."""
    count = draw(st.integers(2, 12))
    steps = []
    for n in range(count):
        name, arity = draw(st.sampled_from(STEPS))
        reads = [draw(st.integers(max(0, n - 3), n)) for _ in range(arity)]
        steps.append((name, draw(st.integers(0, 3)), tuple(reads)))
    return tuple(steps)


def model_of(steps):
    def fn(p, x):
        values, read = [x], set()
        for name, i, reads in steps:
            f = ONE.get(name) or TWO[name]
            values.append(f(p, i, *(values[r] for r in reads)))
            read.update(reads)
        return tuple(v for n, v in enumerate(values) if n not in read)

    batches = [(s * RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32),) for s in (1, 2)]
    return jq.Model(fn, PARAMS, batches[0], calibration=batches), batches


def lowered(model):
    return api.rewrite(model, pipeline=PIPELINE, target=TARGET)


def check(steps, *, iree):
    model, batches = model_of(steps)
    levels = lowered(model)
    if not iree:
        # What stands behind the last dequantize may stay float: no claim on the bits of functions.
        left = {op.operation.name for op in levels["integer"].walk()} & FLOAT_FUNCTIONS
        assume(not left)
    for x in batches:
        want = stablehlo_numpy.run(levels["integer"], list(x))
        results = {"xla": evaluated(levels["integer"], *x)}
        if iree:
            results["iree"] = run_iree(levels["target"], list(x))
        for runner, got in results.items():
            for a, b in zip(got, want, strict=True):
                assert_same_bits(a, b, f"{runner}: {steps}")


QUICK = settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))


@QUICK
@example((("dense_relu", 3, (0,)), ("elu", 1, (1,))))
@given(graphs())
def test_graphs_have_the_bits_of_numpy(steps):
    check(steps, iree=False)


def test_chains_have_the_same_bits_in_iree():
    """All kinds of op in one program, most of them on the result of another."""
    steps = tuple(
        (name, n % 4, (max(0, n - 2),) if name in ONE else (n, n // 2))
        for n, name in enumerate([*ONE, *TWO])
    )
    check(steps, iree=True)


def test_a_condition_on_a_function_of_codes_is_a_table():
    """`where(silu(x) > 0, ...)`: the select is of codes, what it asks is one function of others."""
    check(
        (("dense_relu", 1, (0,)), ("silu", 0, (1,)), ("elu", 3, (2,)), ("rms_norm", 2, (3,))),
        iree=True,
    )


def test_the_largest_in_front_of_a_product_are_found_among_codes():
    x = RNG.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    weight = RNG.standard_normal((3, COLUMNS)).astype(np.float32)
    model = jq.Model(lambda w, x: jax.lax.top_k(x, 3)[0] @ w, weight, (x,), calibration=[(x,)])
    (got,) = stablehlo_numpy.run(lowered(model)["integer"], [x])
    wanted = -np.sort(-x, axis=1)[:, :3] @ weight
    half = np.ptp(np.append(x, 0)) / 255 / 2 * np.abs(weight).sum(0)  # of a step, in each operand
    half += np.abs(weight).max(0) / 127 / 2 * np.abs(np.sort(np.abs(x))[:, -3:]).sum(1).max()
    assert (np.abs(got - wanted) <= 1.05 * half).all()


def test_each_step_is_close_to_float():
    """Against the same quantization in floats: at most one step of the result."""
    ones = [(name, 1, (0,)) for name in ONE]
    steps = (("turn", 0, (0,)), *ones, *((name, 1, (0, 1)) for name in TWO))
    model, batches = model_of(steps)
    levels = lowered(model)
    for x in batches:
        qdq, integer = (evaluated(levels[k], *x) for k in ("qdq", "integer"))
        for (name, _, _), a, b in zip(steps[1:], qdq, integer, strict=True):
            values = np.unique(np.concatenate([a.ravel(), b.ravel()]))
            step = np.diff(values).min() if len(values) > 1 else 0
            assert np.abs(a - b).max() <= 1.01 * step, name


@pytest.mark.parametrize("pads", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_windows_side_by_side_may_be_padded(pads):
    """With one row above, the last row is in no window, though as many windows fill the tensor."""
    x, options = RNG.standard_normal((1, 4, 6, 3)).astype(np.float32), ((1, 2, 2, 1),) * 2

    def fn(p, x):
        sides = ((0, 0), pads, (0, 0), (0, 0))
        return jax.lax.reduce_window(x * p, 0.0, jax.lax.add, *options, sides) / 4

    levels = lowered(jq.Model(fn, np.float32(2), (x,), calibration=[(x,)]))
    qdq, integer = (evaluated(levels[k], x)[0] for k in ("qdq", "integer"))
    assert np.abs(qdq - integer).max() <= 1.01 * np.diff(np.unique(integer)).min()


MODELS = {
    "digits_cnn": {"width": 4, "epochs": 1},
    "resnet": {"depth": 14, "width": 8, "image": 32, "classes": 10},
    "mobilenet": {"depth": 0.2, "width": 0.25, "image": 32, "classes": 10},
}


def contraction_types(program):
    ops = [op for op in program.walk() if string_attr(op, NAME) is not None]
    return [
        tuple(str(jq.ir.dtype_of(v)) for v in (*op.operation.operands, op.operation.results[0]))
        for op in ops
        if op.operation.name in ("stablehlo.convolution", "stablehlo.dot_general")
    ]


@pytest.mark.parametrize("name", MODELS)
def test_models_are_integer_from_end_to_end(name):
    model = import_module(f"jq.models.zoo.{name}").build(**MODELS[name])
    levels = lowered(model)
    types = contraction_types(levels["integer"])
    assert types and set(types) == {("int8", "int8", "int32")}
    floats = [
        op.operation.name.removeprefix("stablehlo.")
        for op in levels["integer"].walk()
        if op.operation.results and jq.ir.dtype_of(op.operation.results[0]).kind == "f"
    ]
    # What quantizes the input (with its clamp) and scales the output; nothing else.
    assert len(floats) < 24 and floats[-1] == "multiply"
    assert not {"convolution", "dot_general", "reduce", "reduce_window"} & set(floats)


def test_encoder_is_integer_between_embedding_and_pooling():
    model = import_module("tests.support.encoder").build_random(layers=1)
    levels = lowered(model)
    types = contraction_types(levels["integer"])
    assert len(types) == 8 and set(types) == {("int8", "int8", "int32")}
    x = api.trace(model).calls(model.evaluation)[0]
    a, b = (evaluated(levels[k], *x)[0].ravel() for k in ("float", "integer"))
    assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.99


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, np.float64])
def test_other_float_types(dtype):
    """They are float32 inside, in loops and branches as well; the result has the model's type."""

    def fn(p, x):
        step = lambda x, w: (layer_norm(p, 0, jnp.tanh(x @ w) + x), x.sum(0))  # noqa: E731
        x, sums = jax.lax.scan(step, x, jnp.stack([p["w0"], p["w1"]]))
        return jax.lax.cond(x[0, 0] > 0, lambda x: x * 2, jax.nn.softmax, x), sums

    with jax.enable_x64(dtype == np.float64):
        params = jax.tree.map(lambda a: jnp.asarray(a, dtype), PARAMS)
        batches = [
            (np.asarray(sign * RNG.standard_normal((ROWS, COLUMNS)), dtype),) for sign in (1, -1)
        ]
        batches += [(-x,) for (x,) in batches]
        model = jq.Model(fn, params, batches[0], calibration=batches)
        levels = lowered(model)
    assert offenders(levels["integer"]) == []
    runs = [XlaExecutable(levels[k]) for k in ("float", "integer")]
    for x in batches[:2]:
        for a, b in zip(*(run(*x) for run in runs), strict=True):
            assert b.dtype == dtype
            assert error(b, a) <= bound(levels["integer"])


def test_masked_scores_keep_their_steps():
    """A mask of -10000 in front of softmax does not widen the steps of the scores."""
    bias = np.where(np.tri(COLUMNS), 0, -10000.0).astype(np.float32)

    def fn(p, x, mask):
        return jax.nn.softmax(x @ x.T + mask) @ x

    x = RNG.standard_normal((COLUMNS, COLUMNS)).astype(np.float32)
    levels = lowered(jq.Model(fn, {}, (x, bias), calibration=[(x, bias)]))
    a, b = (evaluated(levels[k], x, bias)[0] for k in ("float", "integer"))
    assert error(b, a) <= bound(levels["integer"])


@pytest.mark.parametrize("fill", [-1e9, -np.inf, float(np.finfo(np.float32).min)])
def test_scores_that_a_select_masks_keep_their_steps(fill):
    def fn(p, x):
        scores = jnp.where(np.tri(COLUMNS, dtype=bool), x @ x.T / 3, fill)
        return jax.nn.softmax(scores) @ x

    x = RNG.standard_normal((COLUMNS, COLUMNS)).astype(np.float32)
    levels = lowered(jq.Model(fn, {}, (x,), calibration=[(x,)]))
    a, b = (evaluated(levels[k], x)[0] for k in ("float", "integer"))
    assert error(b, a) <= bound(levels["integer"])
    selects = [line for line in levels["integer"].text().splitlines() if ".select" in line]
    assert any(line.endswith("xi64>") for line in selects)


def multiplied(p, x):
    return jnp.cumprod(x @ p["w0"], 1) @ p["w1"]


def test_verifier_names_the_offender():
    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    with pytest.raises(UserError, match="reduce_window has no integer form"):
        lowered(jq.Model(multiplied, PARAMS, (x,), calibration=[(x,)]))


def test_what_the_device_lacks_is_named_before_what_follows():
    """The factor in front is float because of the product, which has no form in 16 bits."""
    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    model = jq.Model(lambda p, x: (x * 3 * x) @ x.T @ x, {}, (x,), calibration=[(x,)])
    wide = {"activations.format": "int16"}
    with pytest.raises(UserError, match="llvm-cpu has no product int16 x int16"):
        api.rewrite(model, pipeline=PIPELINE, target="llvm-cpu", settings=wide)


def test_explain_has_the_plan_of_what_is_refused():
    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    model = jq.Model(multiplied, PARAMS, (x,), calibration=[(x,)])
    found = api.explain(model, pipeline=PIPELINE, target=TARGET)
    assert [row["decision"] for row in found["ops"]] == ["integer", "integer"]
    assert "reduce_window has no integer form" in found["refused"]


def test_ranges_of_another_pipeline_are_named():
    """Sums, which int8-static leaves float, have no range in its file."""
    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    fn = lambda p, x: jnp.tanh(x @ p["w0"] + x) @ p["w1"]  # noqa: E731
    model = jq.Model(fn, PARAMS, (x,), calibration=[(x,)])
    ranges = api.calibrate(model, pipeline="int8-static")
    with pytest.raises(UserError, match="the ranges lack . of the . tensors.*another pipeline"):
        api.rewrite(model, pipeline=PIPELINE, target=TARGET, ranges=ranges)


def test_floats_that_choose_codes_offend():
    """The order of numbers is of integers; it is found among floats."""

    def fn(p, x):
        return jax.nn.one_hot(jnp.argsort(x @ p["w0"], -1)[..., 0], COLUMNS) @ p["w1"]

    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    with pytest.raises(UserError, match="sort.* has no integer form"):
        lowered(jq.Model(fn, PARAMS, (x,), calibration=[(x,)]))


REDUCERS = {  # of pairs of a number and an index, the number to begin with, and axes
    "from 2 on": (lambda a, b: (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), 2.0, (1,)),
    "the last": (lambda a, b: (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] > b[1])), -np.inf, (1,)),
    "the least": (lambda a, b: (b[0] > a[0]) | ((a[0] == b[0]) & (a[1] < b[1])), np.inf, (1,)),
    "of all": (lambda a, b: (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), -np.inf, (0, 1)),
}


@pytest.mark.parametrize("name", REDUCERS)
def test_places_that_are_no_argmax(name):
    """Found as the model says, not at the first extreme along one axis."""
    first, start, axes = REDUCERS[name]

    def place(y):
        def chosen(a, b):
            return tuple(
                jnp.where(first(a, b), one, other) for one, other in zip(a, b, strict=True)
            )

        pairs = y, jax.lax.broadcasted_iota(jnp.int32, y.shape, 1)
        return jax.lax.reduce(pairs, (np.float32(start), np.int32(77)), chosen, axes)[1]

    def fn(p, x):
        y = x @ p["w0"]
        return y, place(y)

    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    params = {"w0": np.repeat(PARAMS["w0"][:, ::2], 2, 1)}  # each extreme is there twice
    levels = lowered(jq.Model(fn, params, (x,), calibration=[(x,)]))
    y, found = evaluated(levels["integer"], x)
    assert np.array_equal(found, place(y))


def test_floats_behind_the_last_contraction_are_the_users():
    def fn(p, x):
        return jnp.sort(x @ p["w0"])

    x = RNG.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    levels = lowered(jq.Model(fn, PARAMS, (x,), calibration=[(x,)]))
    assert offenders(levels["integer"]) == []


def test_accumulators_that_can_overflow_are_refused():
    """70,000 codes of 127 against 8-bit activations reach 2.2e9, more than int32 holds."""
    params = {"w": np.ones((70_000, 1), np.float32)}
    x = np.linspace(0, 1, 70_000, dtype=np.float32)[None]
    model = jq.Model(lambda p, x: x @ p["w"], params, (x,), calibration=[(x,)])
    with pytest.raises(UserError, match=r"int32.*\[w\]"):
        lowered(model)


def test_a_bias_that_fills_the_accumulator_is_added_behind():
    """Weights of 1e-6 against a bias of 1e3: 1e3 / (1e-6 / 127 * 2 / 255) steps."""
    params = {"w": np.full((8, 2), 1e-6, np.float32), "b": np.array([1e3, -500], np.float32)}
    params["w"][:, 1] = 1
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None] + 0.5
    model = jq.Model(lambda p, x: x @ p["w"] + p["b"], params, (x,), calibration=[(x,)])
    levels = lowered(model)
    (got,), (want,) = (evaluated(levels[k], x) for k in ("integer", "float"))
    assert np.abs(got - want).max() < 1500 / 65535  # a step of the int16 output


def test_of_a_factor_of_0_the_bias_is_left():
    """Rotary positions: the sine of the first one is 0."""
    angles = np.arange(5, dtype=np.float32)[:, None] * np.float32([1, 0.3])
    factors = np.sin(angles), np.cos(angles)
    w = np.eye(2, dtype=np.float32)

    def fn(p, x):
        a, b = ((x @ p) * factor for factor in factors)
        return a - b, a + b, a + np.float32([0.5, -0.25])

    x = RNG.uniform(-1, 1, (5, 2)).astype(np.float32)
    levels = lowered(jq.Model(fn, w, (x,), calibration=[(x,)]))
    for got, want in zip(evaluated(levels["integer"], x), fn(w, x), strict=True):
        assert np.abs(got - want).max() <= 5 / 255  # five roundings, by half a step of 2 / 255


def test_a_bias_that_is_too_large_altogether_is_refused():
    params = {"w": np.ones((8, 1), np.float32), "b": np.full(1, 1e9, np.float32)}
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]

    def fn(p, x):
        y = x @ p["w"] + p["b"]
        return jnp.clip(y, -1, 1)

    with pytest.raises(UserError, match=r"a sum can reach .*\[w\]"):
        lowered(jq.Model(fn, params, (x,), calibration=[(x,)]))


def rounding_to_indices(table, x):
    places = jnp.clip(jnp.floor(x), 0, 7).astype(jnp.int32)
    return table[places], jnp.round(x).astype(jnp.int8), (x * 1.3).astype(jnp.uint8) + 1


def test_whole_numbers_are_of_the_codes_of_what_is_rounded():
    """3.0 among codes of floor's own result might be 2.99, and become 2."""
    x = np.linspace(-0.4, 7.3, 256, dtype=np.float32)[None]
    table = RNG.standard_normal(8).astype(np.float32)
    model = jq.Model(rounding_to_indices, table, (x,), calibration=[(x,)])
    compiled = api.compile(model, pipeline=PIPELINE)
    step = (x.max() - x.min()) / 255
    near = [np.abs(v - np.rint(v)) > step for v in (x, x + 0.5, 1.3 * x)]  # from the next number
    results = zip(compiled(x), rounding_to_indices(table, x), near, strict=True)
    for got, wanted, sure in results:
        assert sure.mean() > 0.9
        np.testing.assert_allclose(got[sure], wanted[sure], atol=0.02)


def test_a_rounding_that_others_read_makes_the_same_whole_numbers():
    """The index and the fraction of an interpolation."""
    x = np.linspace(0, 6.9, 256, dtype=np.float32)[None]
    table = RNG.standard_normal(9).astype(np.float32)

    def interpolated(table, x):
        low = jnp.clip(jnp.floor(x), 0, 7)
        i = low.astype(jnp.int32)
        return i, table[i] * (1 - (x - low)) + table[i + 1] * (x - low)

    model = jq.Model(interpolated, table, (x,), calibration=[(x,)])
    i, y = api.compile(model, pipeline=PIPELINE)(x)
    sure = np.abs(x - np.rint(x)) > 6.9 / 255
    np.testing.assert_array_equal(i[sure], np.floor(x)[sure])
    assert np.abs(y - interpolated(table, x)[1])[sure].max() < 0.1


SHIFTS = {jax.lax.shift_left: np.left_shift, jax.lax.shift_right_arithmetic: np.right_shift}


def test_shifts_of_whole_numbers_are_tables():
    def shifted(p, x):
        return ((8 * x).astype(jnp.int32) >> 1).astype(jnp.float32) * x

    x = np.linspace(-1, 0.9921875, 256, dtype=np.float32)[None]  # its codes are exact
    model = jq.Model(shifted, {}, (x,), calibration=[(x,)])
    settings = {"activations.residual": "int8"}
    (got,) = stablehlo_numpy.run(
        api.rewrite(model, pipeline=PIPELINE, settings=settings)["integer"], [x]
    )
    wanted = np.asarray(shifted({}, x))
    assert np.abs(got - wanted).max() <= 1.5 * np.ptp(wanted) / 255  # its factors are rounded, too
    for dtype in (np.int8, np.int32, np.int64):  # counts beyond the bits are as in XLA
        numbers, counts = np.array([-100, -1, 0, 77], dtype), np.array([-1, 3, 40, 70], dtype)
        for ours, numpys in SHIFTS.items():
            with jax.enable_x64(True):
                np.testing.assert_array_equal(ours(numbers, counts), numpys(numbers, counts))


def test_a_complex_number_of_codes_keeps_its_fraction():
    x = np.linspace(-2, 2, 64, dtype=np.float32)[None]
    model = jq.Model(lambda _, x: (x * 1.3).astype(jnp.complex64), x, (x,), calibration=[(x,)])
    found = api.compile(model, pipeline=PIPELINE)(x)
    np.testing.assert_allclose(found, 1.3 * x, atol=0.02)


def test_a_sum_of_a_number_is_no_row():
    """A normalization has rows; what has no axes is a table or a chain."""
    x = np.linspace(-2, 2, 6, dtype=np.float32)

    def fn(_, x):
        return jax.lax.map(lambda v: v * v.sum() / (1 + jnp.abs(v).sum()), x)

    model = jq.Model(fn, {}, (x,), calibration=[(x,)])
    found = evaluated(lowered(model)["integer"], x)[0]
    np.testing.assert_allclose(found, x * x / (1 + abs(x)), atol=0.02)


@pytest.mark.parametrize(
    ("shape", "contracted", "batch"), [((8, 14), (0, 2), ()), ((15, 8, 5), (2, 3), (1, 2))]
)
def test_a_weight_may_be_the_left_operand(shape, contracted, batch):
    """Columns are the axes that the weight has in the result, where activations have more."""
    x, w = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 3, 8, 5), shape))
    pairs = [[[a] for a in contracted], [[a] for a in batch] or [[], []]]

    def fn(w, x):
        return jnp.tanh(jax.lax.dot_general(w, jnp.tanh(x), pairs))

    levels = api.rewrite(jq.Model(fn, w, (x,), calibration=[(x,)]), pipeline=PIPELINE)
    (got,), (want,) = run_iree(levels["target"], [x]), evaluated(levels["integer"], x)
    assert_same_bits(got, want, "iree")
    assert np.abs(got - fn(w, x)).max() < 0.1


@pytest.mark.parametrize("side", ["max", "min"])
def test_what_is_compared_has_the_same_codes(side):
    """The range of one is far smaller than that of the other: with other codes nothing is equal."""
    sign = 1 if side == "max" else -1
    x = RNG.uniform(-8, -1, (16, 5)).astype(np.float32)
    x[:, 2] = 1 + x[:, 2] / 8
    x *= sign

    def fn(p, x):
        return jnp.where(x == getattr(x, side)(1, keepdims=True), x, 0.0)

    model = jq.Model(fn, {}, (x,), calibration=[(x,)])
    (got,) = stablehlo_numpy.run(lowered(model)["integer"], [x])
    assert np.abs(got - fn({}, x)).max() <= 9 / 255
