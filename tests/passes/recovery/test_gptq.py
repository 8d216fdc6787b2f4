"""GPTQ as a pass: which weights it takes, in every orientation, and what it gains."""

import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq import api
from jq.formats import NUMPY, get_format
from jq.frontends.model import Model
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.qdq.place_weights import PlaceWeights
from jq.passes.recovery import _inputs, gptaq
from jq.passes.recovery.gptaq import Earlier, Gptaq
from jq.passes.recovery.gptq import Gptq
from tests.passes.recovery.models import context, mlp, normal
from tests.support.programs import evaluated

RNG = np.random.default_rng(5)
INT4 = {"weights.format": "int4"}
ODD = RNG.standard_normal((4, 8, 32)).astype(np.float32)


def outputs(program, data):
    run = XlaExecutable(program)
    return np.concatenate([run(*x)[0] for x in data])


def after(program, cx):
    copy = program.clone()
    PlaceWeights().run(copy, cx)
    return copy


KINDS = [
    {"weights.format": "int4", "weights.scheme": scheme, "weights.granularity": granularity}
    for scheme in ("symmetric", "asymmetric")
    for granularity in ("per-channel", "per-block")
]


@pytest.mark.parametrize(
    "settings", [*KINDS, *({"weights.format": f} for f in ("mxfp4", "nvfp4", "nf4"))]
)
def test_the_output_is_closer(settings):
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, settings)
    reference = outputs(program, data)
    plain = outputs(after(program, cx), data)
    assert Gptq().run(program, cx)
    assert sorted(program.chosen) == ["down", "side", "up"]
    ours = outputs(after(program, cx), data)
    assert ((ours - reference) ** 2).sum() < ((plain - reference) ** 2).sum()


def test_masked_rows_do_not_count():
    """The same codes whatever stands in rows that the mask removes."""
    model, data = mlp()
    found = []
    for noise in (0, 50):
        noisy = [[np.where(m[..., None] == 0, x + noise * ODD, x), m] for x, m in data]
        program, cx = context(model, "int8-weight-only", noisy, INT4)
        Gptq().run(program, cx)
        found.append(program.chosen["up"]["codes"])
    assert (found[0] == found[1]).mean() > 0.999


def test_every_orientation():
    """Weights on either side, transposed, and with several free or contracted axes."""

    def f(p, x):
        return {
            "plain": x @ p["plain"],
            "transposed": x @ p["transposed"].T,
            "left": jnp.einsum("oi,bi->ob", p["left"], x),
            "heads": jnp.einsum("bi,ind->bnd", x, p["heads"]),
            "two": jnp.einsum("bij,oji->bo", x.reshape(-1, 4, 8), p["two"]),
        }

    params = {
        "plain": normal(32, 20),
        "transposed": normal(20, 32),
        "left": normal(20, 32),
        "heads": normal(32, 4, 5),
        "two": normal(20, 8, 4),
    }
    mixing = normal(32, 32)
    data = [[(RNG.standard_normal((64, 32)) @ mixing).astype(np.float32)] for _ in range(2)]
    model = Model(f, params, tuple(data[0]))
    program, cx = context(model, "int8-weight-only", data, INT4)
    assert Gptq(damping=0.01).run(program, cx)
    assert sorted(program.chosen) == sorted(params)
    plain = after(replace(program, chosen={}), cx)
    runs = [XlaExecutable(p) for p in (program, plain, after(program, cx))]
    reference, rounded, ours = (
        [np.concatenate(parts) for parts in zip(*(run(*x) for x in data), strict=True)]
        for run in runs
    )
    for i, output in enumerate(program.outputs):
        a, b = (((y[i] - reference[i]) ** 2).sum() for y in (ours, rounded))
        assert a < b, output.name


@pytest.mark.parametrize("size", [64, 40])
@pytest.mark.parametrize("spec", ["HWIO", "OIHW", "OHWI"])
def test_kernels_whose_blocks_hold_all_taps(spec, size):
    """Blocks along one of three axes: with 40 channels, the last one is short."""
    rng = np.random.default_rng(3)
    shape = {"H": 3, "W": 3, "I": size, "O": 24}
    w = rng.standard_normal([shape[a] for a in spec]).astype(np.float32)

    def f(p, x):
        dims = ("NHWC", spec, "NHWC")
        return jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dims)

    mix = rng.standard_normal((8, size)).astype(np.float32)  # channels are correlated
    data = [[rng.standard_normal((1, 8, 8, 8)).astype(np.float32) @ mix] for _ in range(12)]
    model = Model(f, {"w": w}, (data[0][0],))
    program, cx = context(model, "int4-weight-only", data)
    reference = outputs(program, data)
    plain = outputs(after(program, cx), data)
    assert Gptq().run(program, cx)
    assert list(program.chosen) == ["w"]
    ours = outputs(after(program, cx), data)
    assert ((ours - reference) ** 2).sum() < 0.3 * ((plain - reference) ** 2).sum()


def test_convolutions_and_batched_products():
    """Strided, grouped and depthwise convolutions, and a product a batch index."""
    rng = np.random.default_rng(11)

    def weight(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def conv(x, w, groups, strides=(1, 1)):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    def f(p, x):
        y = conv(x, p["plain"], 1, (2, 1))
        return {
            "plain": y,
            "grouped": conv(x, p["grouped"], 2),
            "depthwise": conv(x, p["depthwise"], 8),
            "batched": jnp.einsum("bhwc,hco->bhwo", x, p["batched"]),
        }

    params = {
        "plain": weight(3, 3, 8, 12),
        "grouped": weight(3, 3, 4, 12),
        "depthwise": weight(3, 3, 1, 8),
        "batched": weight(6, 8, 10),
    }
    mixing = np.ones((8, 8)) * 0.5 + np.eye(8)
    data = []
    for _ in range(3):
        x = rng.standard_normal((4, 6, 6, 8)) @ mixing
        x = x + np.roll(x, 1, 1) + np.roll(x, 1, 2)  # neighbours are alike, as in images
        data.append([x.astype(np.float32)])
    program, cx = context(Model(f, params, tuple(data[0])), "int8-weight-only", data, INT4)
    assert Gptq(damping=0.01).run(program, cx)
    assert sorted(program.chosen) == sorted(params)
    plain = after(replace(program, chosen={}), cx)
    runs = [XlaExecutable(p) for p in (program, plain, after(program, cx))]
    reference, rounded, ours = (
        [np.concatenate(parts) for parts in zip(*(run(*x) for x in data), strict=True)]
        for run in runs
    )
    for i, output in enumerate(program.outputs):
        a, b = (((y[i] - reference[i]) ** 2).sum() for y in (ours, rounded))
        assert a < b, output.name


def test_data_are_run_again_where_moments_take_too_much_memory(monkeypatch):
    """In as many parts as it takes, with the same result."""
    model, data = mlp()
    found = []
    for limit in (1 << 30, 1):
        monkeypatch.setattr(_inputs, "MEMORY", limit)
        program, cx = context(model, "int8-weight-only", data, INT4)
        Gptq().run(program, cx)
        found.append(program.chosen)
    for name, parts in found[0].items():
        np.testing.assert_array_equal(parts["codes"], found[1][name]["codes"])


def test_parts_decode_in_stored_order():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data)
    Gptq().run(program, cx)
    for name, parts in program.chosen.items():
        enc = cx.plan.weights[name]
        decoded = get_format(enc.format).decode(NUMPY, parts, enc)
        weight = program.weights[name]
        assert np.abs(decoded - weight).max() < 3 * np.abs(weight).max() / 127, name


def test_without_data_it_is_skipped_with_a_warning(caplog):
    model, _ = mlp()
    program, cx = context(model, "int8-weight-only", None, INT4)
    with caplog.at_level(logging.WARNING, "jq"):
        assert not Gptq().run(program, cx)
    assert "(gptq, ...) are skipped" in caplog.text and not program.chosen


def test_what_it_cannot_take_is_named(caplog):
    def f(p, x, i):
        h = x @ p["reshaped"].reshape(32, 8) + p["table"][i]
        return jax.lax.scan(lambda c, w: (c @ w, None), h, p["stack"])[0]

    params = {"reshaped": normal(8, 32), "table": normal(5, 8), "stack": normal(3, 8, 8)}
    data = [[RNG.standard_normal((4, 32)).astype(np.float32), np.arange(4, dtype=np.int32)]]
    program, cx = context(Model(f, params, tuple(data[0])), "int8-weight-only", data, INT4)
    with caplog.at_level(logging.INFO, "jq"):
        Gptq().run(program, cx)
    assert "reshaped is rounded plainly: it is read through more than a transpose" in caplog.text
    assert "table is rounded plainly: gather is not a matrix product" in caplog.text
    assert "stack is rounded plainly: it is read inside a loop" in caplog.text


def test_several_skipped_passes_warn_once(caplog):
    model, _ = mlp()
    with caplog.at_level(logging.WARNING, "jq"):
        compiled = api.compile(model, "int8-dynamic")
    assert caplog.text.count("without calibration data") == 1
    notes = compiled.manifest.notes
    assert [n.split()[0] for n in notes if "calibration data" in n] == ["smooth", "gptq"]


def test_pools_of_bfloat16_have_gradients():
    """The start of a pool is a constant of a type that NumPy has no buffers of."""

    def pooled(w, x):
        half = jnp.asarray(0, jnp.bfloat16)
        return jax.lax.reduce_window(x @ w, half, jax.lax.add, (1, 2, 1), (1, 2, 1), "VALID")

    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 8)).astype(jnp.bfloat16)
    x = rng.standard_normal((2, 4, 16)).astype(jnp.bfloat16)
    model = Model(pooled, w, (x,), calibration=[(x,)])
    settings = {"weights.format": "int4", "min_elements": 1}
    levels = api.rewrite(model, pipeline="int8-weight-only", settings=settings)
    (got,), want = evaluated(levels["qdq"], x), np.asarray(pooled(w, x), np.float32)
    step = (
        np.abs(w.astype(np.float32)).max(0) / 7
    )  # a weight moves by one at most, to the other side
    moved = np.abs(x.astype(np.float32)).reshape(2, 2, 2, 16).sum((2, 3))[..., None] * step
    assert (np.abs(got.astype(np.float32) - want) <= moved + 2.0**-8 * np.abs(want)).all()


def test_codes_of_eight_bits_in_blocks_and_numbers_far_from_one_are_rounded_plainly(caplog):
    model, data = mlp()
    model.params["down"] *= np.float32(2.0**60)
    program, cx = context(model, "int8-weight-only", data, {"weights.format": "mxfp4"})
    with caplog.at_level(logging.INFO, "jq"):
        assert Gptq().run(program, cx)
    assert sorted(program.chosen) == ["side", "up"]
    assert "down is rounded plainly: its numbers are far from 1" in caplog.text
    program, cx = context(model, "int8-weight-only", data, {"weights.format": "mxint8"})
    assert not Gptq().run(program, cx) and not program.chosen


@pytest.mark.parametrize("how", ["direct", "turned", "convolution", "nvfp4"])
def test_the_output_gains_where_later_ops_take_notice_of_few_directions(how):
    """`turned`: the columns of the result are not in the order in which the weight is stored."""
    rng = np.random.default_rng(11)

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    few = draw(32, 4) @ draw(4, 32) + np.float32(0.05) * draw(32, 32)

    def f(p, x):
        if how == "convolution":
            y = jax.lax.conv_general_dilated(
                x[:, None], p["w"][None, None], (1, 1), "SAME",
                dimension_numbers=jax.lax.conv_dimension_numbers(
                    (1, 1, 64, 24), (1, 1, 24, 32), ("NHWC", "HWIO", "NHWC")),
            )[:, 0]  # fmt: skip
        elif how == "turned":
            y = jnp.einsum("brk,knm->brmn", x, p["w"]).reshape(*x.shape[:2], 32)
        else:
            y = x @ p["w"]
        return y @ few

    weight = draw(24, 32) if how != "turned" else draw(24, 4, 8)
    mixing = draw(24, 24)
    data = [[draw(1, 64, 24) @ mixing] for _ in range(8)]
    given = INT4 if how != "nvfp4" else {"weights.format": "nvfp4"}
    program, cx = context(Model(f, {"w": weight}, tuple(data[0])), "int8-weight-only", data, given)
    reference, errors = outputs(program, data), []
    for both in (False, True):
        copy = program.clone()
        Gptq(outputs=both).run(copy, cx)
        errors.append(((outputs(after(copy, cx), data) - reference) ** 2).sum())
    assert errors[1] < 0.8 * errors[0], errors


def two_products():
    """(x A) B of correlated x, whose sequences are no first axis, and data to fit and to try."""
    rng = np.random.default_rng(17)
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) / 6 for _ in range(2))
    mixing = rng.standard_normal((32, 32)) / np.arange(1, 33)[:, None]
    data = [[(rng.standard_normal((8, 6, 32)) @ mixing).astype(np.float32)] for _ in range(12)]
    data = [[np.moveaxis(x, 2, 1)] for (x,) in data]

    def f(p, x):
        return jnp.einsum("bhs,hk->bsk", jnp.einsum("bis,ih->bhs", x, p["a"]), p["b"])

    model = Model(f, {"a": a, "b": b}, tuple(data[0]))
    settings = {"weights.format": "int3", "weights.scheme": "asymmetric"}
    return context(model, "int8-weight-only", data[:8], settings), a, b, data


@pytest.mark.parametrize("shared", [0.0, 0.25])
def test_a_product_aims_at_what_undoes_the_rounding_in_front(shared, monkeypatch):
    """x A B = x A' (A'^-1 A B) for every x: whatever rows count."""
    monkeypatch.setattr(gptaq, "RIDGE", 1e-12)
    (program, cx), a, b, data = two_products()
    how = Gptaq(power=0.0, shared=shared, earlier=1.0)
    walk = Earlier(how, how._task(program, cx))
    enc = cx.plan.weights["a"]
    parts = get_format("int3").encode(3 * a, enc)  # far from rounding
    rounded = get_format("int3").decode(NUMPY, parts, enc).astype(np.float64)
    floats = np.eye(32)
    same, gram = walk.aim("a", a, floats)
    assert same == pytest.approx(a) and gram.shape == (32, 32)
    walk.put("a", parts)
    x = np.concatenate([np.moveaxis(x, 1, 2).reshape(-1, 32) for (x,) in data[:8]]) @ rounded
    means = np.concatenate([np.moveaxis(x, 1, 2).sum(1) for (x,) in data[:8]]) @ rounded / 6**0.5
    gram = (1 - shared) * x.T @ x + shared * means.T @ means
    found, weighed = walk.aim("b", b, floats)
    np.testing.assert_allclose(found, np.linalg.inv(rounded) @ a @ b, atol=2e-3)
    np.testing.assert_allclose(weighed, gram, rtol=1e-4, atol=1e-4 * np.abs(gram).max())
    assert np.abs(found - b).max() > 0.1
    monkeypatch.setattr(gptaq, "ROWS", 1 + len(x) // 32)  # fewer rows than that say too little
    same, weighed = walk.aim("b", b, floats)
    assert same is b and weighed is floats


def test_a_step_sees_no_batch_that_learning_measures_on():
    """Only there, and only where it is learned: with few bits and minutes."""
    (program, cx), *_ = two_products()
    chosen = [Gptq().batches_of(Gptq()._task(program, cx))]
    cx = replace(cx, settings=cx.settings.model_copy(update={"minutes": 1.0}))
    chosen.append(Gptq().batches_of(Gptq()._task(program, cx)))
    assert [*map(list, chosen)] == [[*range(8)], [*range(1, 8)]]


def test_an_aim_that_has_no_scale_leaves_plain_rounding(monkeypatch, caplog):
    """Codes of the others are chosen; the compile goes on."""
    (program, cx), *_ = two_products()
    weights = {n: replace(e, scale_type="float16") for n, e in cx.plan.weights.items()}
    cx = replace(cx, plan=replace(cx.plan, weights=weights))

    class Far:
        def aim(self, name, weight, gram):
            return (weight * np.float32(1e9) if name == "b" else weight), gram

        def put(self, name, parts):
            pass

    monkeypatch.setattr(Gptaq, "aims", lambda self, task: Far())
    with caplog.at_level(logging.WARNING, "jq"):
        assert Gptaq().recover(program, cx)
    assert program.chosen.keys() == {"a"}
    assert "b is rounded plainly: int3: a block needs a scale beyond float16" in caplog.text


def test_batches_whose_gains_had_no_room_do_not_outweigh_others():
    """Half of the batches tell about as much as all; rows have small gains."""
    (program, cx), a, b, _ = two_products()
    how = Gptaq(shared=0.0)
    task = how._task(program, cx)
    reader = task.uses["b"][0].wanted.name
    walk = Earlier(how, task)
    walk.put("a", get_format("int3").encode(a, cx.plan.weights["a"]))
    known, gram = cx.gains.known, 1e-3 * 8 * 48 * np.eye(32)
    known |= {(reader, i): np.full(48, 1e-6, np.float32) for i in range(8)}
    whole, _ = walk.aim("b", b, gram)
    for i in range(4, 8):
        del known[reader, i]
    away = np.abs(walk.aim("b", b, gram)[0] - whole).max()
    assert 0 < away < np.abs(whole - b).max()


def test_what_is_rounded_in_front_is_made_up_for():
    """On data that nothing was fitted to."""
    (program, cx), _, _, data = two_products()
    reference, lost = outputs(program, data[8:]), []
    for step in (Gptq(), Gptaq()):
        copy = program.clone()
        step.run(copy, cx)
        lost.append(float(np.square(outputs(after(copy, cx), data[8:]) - reference).sum()))
    assert lost[1] < 0.95 * lost[0], lost
