"""`--pipeline auto`: a format for every op, by measured error and estimated time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.base.progress import Stages
from jq.driver.job import Job, prepare_job
from jq.driver.request import Request
from jq.kernels import ISAS, get_isa
from jq.mixed_precision.auto import settle
from jq.mixed_precision.problem import pipeline_of
from jq.mixed_precision.speed import Rates
from jq.mixed_precision.worth import WorthChooser
from jq.target.target import load_target
from tests.support.targets import EVERY

ROWS, WIDTH, LAYERS = 64, 48, 4
STATIC, PER_TOKEN = "int8 per-tensor asymmetric", "int8 per-token asymmetric"
LOUD = 3000.0  # one channel over all others: one scale for a tensor leaves these no codes


def network(params: Any, x: Any) -> Any:
    """Layers of which one may read channels of very different size."""
    for name in sorted(params["layers"]):
        layer = params["layers"][name]
        x = jnp.tanh((x * layer["gain"]) @ layer["w"])
    return x @ params["head"]


def drawn(seed: int, loud: int | None) -> jq.Model:
    """A net whose layer `loud` has, in what it reads, a channel that is far larger than others and
    that counts for as much as they do."""
    rng = np.random.default_rng(seed)
    layers = {}
    for i in range(LAYERS):
        weight = rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
        gain = np.ones(WIDTH)
        if i == loud:
            channel = rng.integers(WIDTH)
            gain[channel] = LOUD
            weight[channel] /= LOUD
        layers[f"l{i}"] = {"w": weight.astype(np.float32), "gain": gain.astype(np.float32)}
    head = (rng.standard_normal((WIDTH, 8)) / np.sqrt(WIDTH)).astype(np.float32)
    data = [(rng.standard_normal((ROWS, WIDTH)).astype(np.float32),) for _ in range(4)]
    params = {"layers": layers, "head": head}
    return jq.Model(network, params, data[0], calibration=data[:3], evaluation=data[3:])


# Smoothing would take the large channel away before there is anything to choose.
PLAIN = ["recovery=false"]


def settled(model: jq.Model, target: str = "llvm-cpu", **options: Any) -> Job:
    stages = Stages()
    request = Request("auto", target, **options, stages=stages)
    return settle(prepare_job(model, request), stages)


def formats(model: jq.Model, target: str = "avx512_vnni", **options: Any) -> dict[str, str]:
    """By layer, how its activations are quantized; those of the head too."""
    options["target"] = target
    plan = jq.plan(model, pipeline="auto", settings=PLAIN, **options)
    return {op.name: op.to_dict()["activations"] or "float" for op in plan.ops}


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize(("seed", "loud"), [(0, None), (1, 0), (2, 2), (3, 3)])
def test_the_layer_with_a_loud_channel_gets_more_bits_and_no_other(seed, loud, target) -> None:
    """Also where these are so much slower that no precision above the floor is worth them."""
    plan = jq.plan(drawn(seed, loud), pipeline="auto", settings=PLAIN, target=target)
    more = {op.name for op in plan.ops if op.to_dict()["activations"] != STATIC}
    assert more == (set() if loud is None else {f"layers/l{loud}/w"})
    for op in plan.ops:
        assert ("chosen" in op.to_dict()["reason"]) == (op.name in more)


@pytest.mark.parametrize("target", EVERY)
def test_loud_rows_are_quantized_row_by_row(target: str) -> None:
    """A range for each token costs little and is enough where a token is large as a whole."""
    rng = np.random.default_rng(7)
    model = drawn(7, None)
    rows = np.geomspace(1, 3e3, ROWS).astype(np.float32)[:, None]
    data = [(rng.standard_normal((ROWS, WIDTH)).astype(np.float32) * rows,) for _ in range(3)]

    def normed(params: Any, x: Any) -> Any:
        y = x @ params["first"]
        return network(params, y / jnp.abs(y).max(-1, keepdims=True))

    params = {**model.params, "first": np.eye(WIDTH, dtype=np.float32)[::-1].copy()}
    found = formats(jq.Model(normed, params, data[0], calibration=data), target)
    assert found.pop("first") == PER_TOKEN
    assert set(found.values()) == {STATIC}


def test_it_is_closer_than_the_pipeline_that_it_starts_from() -> None:
    model = drawn(1, 1)
    fixed = jq.compile(model, "int8-static", settings=PLAIN)
    chosen = jq.compile(model, "auto", settings=PLAIN)
    errors = [jq.compare(model, each).outputs[0].sqnr_db for each in (fixed, chosen)]
    assert errors[0] < 10 and errors[1] > 30
    assert [n for n in chosen.manifest.notes if n.startswith("auto: 4 int8-static, 1 float")]


def test_the_same_bytes_each_time() -> None:
    model = drawn(2, 1)
    first, second = (jq.compile(model, "auto", settings=PLAIN, cache=False) for _ in range(2))
    assert first.vmfb == second.vmfb
    assert first.manifest.rules == second.manifest.rules


def test_the_choice_is_a_pipeline_file_that_gives_the_same_plan(tmp_path) -> None:
    model = drawn(3, 1)
    compiled = jq.compile(model, "auto", settings=PLAIN)
    assert compiled.manifest.rules[-1]["reason"]
    path = pipeline_of(compiled.manifest).save(tmp_path / "mine.toml")
    again = jq.plan(model, pipeline=str(path))
    assert compiled.plan is not None
    assert again.to_dict()["ops"] == compiled.plan.to_dict()["ops"]
    loaded = compiled.save(tmp_path / "out") and jq.load(tmp_path / "out")
    assert jq.compare(model, loaded, layers=True).layers


def test_a_device_with_one_format_gets_that() -> None:
    job = settled(drawn(4, 1), "npu-int8", settings=PLAIN)
    assert job.pipeline.rules == ()
    assert job.program.notes[-1].endswith("there is nothing to choose")


@pytest.mark.parametrize(("lacking", "others"), [("dynamic", STATIC), ("static", PER_TOKEN)])
def test_ranges_that_a_device_lacks_are_not_chosen(lacking, others) -> None:
    target = load_target("avx512_vnni")
    device = target.device.model_copy(update={lacking: False})
    there = target.model_copy(update={"device": device})
    assert set(formats(drawn(5, None), target=there).values()) == {others}


def test_what_the_user_says_holds() -> None:
    model = drawn(6, 2)
    found = formats(model, rules=["layers/l2/w: activations.mode=static"])
    assert found["layers/l2/w"] == STATIC
    loaded = [*PLAIN, "weights.format=int4"]
    plan = jq.plan(model, pipeline="auto", settings=loaded, target="amx_int8")
    assert {op.to_dict()["weights"].split()[0] for op in plan.ops} == {"int4"}


def test_what_is_below_the_floor_is_warned_of() -> None:
    """A warning where the user leaves no other choice; otherwise there is nothing to say."""
    for more, warned in (["weights.format=int2"], True), ([], False):
        job = settled(drawn(6, 2), "amx_int8", settings=[*PLAIN, *more])
        far = "warning: that is far from the float model, and layers/l"
        assert (far in job.program.notes[-1]) == warned


def test_without_data_there_is_nothing_to_measure() -> None:
    model = drawn(0, None)
    blind = jq.Model(model.fn, model.params, model.example_inputs)
    with pytest.raises(UserError, match="auto measures errors on calibration data"):
        jq.compile(blind, "auto")


def test_a_search_has_budgets_and_candidates_of_its_own() -> None:
    with pytest.raises(UserError, match="auto chooses formats without a budget"):
        jq.search(drawn(0, None), "cosine>=0.9", "auto")
    with pytest.raises(UserError, match="auto is no candidate"):
        jq.search(drawn(0, None), "cosine>=0.9", candidates=["auto"])


def test_a_device_is_checked_with_one_format() -> None:
    with pytest.raises(UserError, match=r"auto chooses formats within `compile`.*int8-static"):
        jq.check(drawn(0, None), "npu-int8", pipeline="auto")


AVX2 = "x86-64-v3"


def test_explain_names_the_kernel_of_pairs_where_it_runs() -> None:
    """Its weights are proven on AVX2; processors that sum bytes in 32 bits have no need of it."""
    text = str(jq.explain(drawn(0, None), pipeline="int8-static", target=AVX2))
    assert "pair_gemm_64x48x48_" in text
    text = str(jq.explain(drawn(0, None), pipeline="int8-static", target="avx512_vnni"))
    assert "pair_gemm" not in text and "gemm_64x48x48_" in text


def test_the_rate_of_pairs_decides(monkeypatch) -> None:
    """It is read from the table of instruction sets: codes lose where it is below that of floats,
    and only where the kernel is."""
    model = drawn(0, None)
    rows = jq.explain(model, pipeline="int8-static", target=AVX2)["ops"]
    paired = {row["name"] for row in rows if row["kernel"].startswith("pair_gemm")}
    assert paired and len(paired) < len(rows)
    assert set(formats(model, target=AVX2).values()) == {STATIC}
    monkeypatch.setitem(ISAS, "avx2", replace(get_isa("avx2"), pair_gain=0.05))
    found = formats(model, target=AVX2)
    assert {name for name, how in found.items() if how == "float"} == paired


def test_pairs_have_a_rate_of_their_own() -> None:
    rates, isa = Rates.of(load_target(AVX2)), get_isa("avx2")
    assert rates.pairs == pytest.approx(isa.pair_gain * rates.kernel)
    assert isa.macs == 32 and get_isa("avx512_vnni").pair_macs == 0


def test_codes_of_16_bits_take_two_products() -> None:
    rates, model = Rates.of(load_target("avx512_vnni")), drawn(0, None)
    plans = [
        jq.plan(model, pipeline=name, settings=PLAIN).ops[0]
        for name in ("int8-static", "int8x16-static")
    ]
    assert [plan.decision for plan in plans] == ["integer", "integer"]
    eight, sixteen = (rates.rate(plan, "gemm_64x48x48") for plan in plans)
    assert sixteen == eight / 2


@pytest.mark.parametrize(("cycles", "chosen"), [(98.0, (0, 1)), (99.5, (0, 0))])
def test_a_choice_op_by_op_is_worth_a_hundredth_of_the_time(
    cycles: float, chosen: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates know no better: less is left to one format for all ops."""
    chooser, mixed = object.__new__(WorthChooser), (0, 1)
    times = {(0, 0): 100.0, mixed: cycles}
    monkeypatch.setattr(WorthChooser, "_best", lambda self: (mixed, [mixed]))
    monkeypatch.setattr(WorthChooser, "_fixed", lambda self: [(0, 0)])
    monkeypatch.setattr(WorthChooser, "time", lambda self, choice: times[choice])
    monkeypatch.setattr(WorthChooser, "whole", lambda self, choice: 0.01)
    chooser._errors = [[0.0, 0.0], [0.0, 0.0]]
    assert chooser.choose() == chosen
