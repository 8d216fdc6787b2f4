"""Plans: what is decided for an op, and the reason where it is declined."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.formats import Encoding, QuantizedTensor, get_format
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, rewrite
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges
from jq.planning.decisions import OpPlan, QuantPlan
from jq.planning.review import mostly_float
from jq.target.rules import parse_rule
from jq.target.target import Device, Target
from tests.support.programs import evaluated
from tests.support.texts import inputs_of, load

DENSE = """(%x: tensor<4x64xf32>, %w: tensor<64x32xf32> {jq.weight = "a/dense/kernel"},
            %v: tensor<32x16xf32> {jq.weight = "b/dense/kernel"}) -> tensor<4x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0]
       : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  return %1 : tensor<4x16xf32>
}"""
PRODUCT = """(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] {jq.name = "scores"}
       : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}"""


def planned(
    text: str,
    pipeline: str = "int8-dynamic",
    rules: tuple[str, ...] = (),
    ranges: Ranges | None = None,
    device: dict[str, Any] | None = None,
    **settings: Any,
) -> QuantPlan:
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    loaded = load_pipeline(pipeline, settings, tuple(parse_rule(r) for r in rules))
    target = Target(name="t", device=Device(**(device or {})))
    return make_plan(load(text), loaded, target, ranges)


def only(plan: QuantPlan) -> OpPlan:
    (op,) = plan.ops
    return op


def reason(text: str, *args: Any, **kwargs: Any) -> str:
    """The one reason with which everything is declined."""
    plan = planned(text, *args, **kwargs)
    assert {op.decision for op in plan.ops} == {"float"} and not plan.weights
    (why,) = {op.reason for op in plan.ops}
    return why


def test_dense_layers_are_integer():
    plan = planned(DENSE)
    assert [op.decision for op in plan.ops] == ["integer", "integer"]
    assert plan["a/dense/kernel"].operands[1].encoding.block == (0, 1)
    assert plan["a/dense/kernel"].operands[0].encoding.block == (1, 0)


def test_explain_has_the_documented_keys():
    data = planned(DENSE, rules=("a/*: float", "nothing/*: float")).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert set(data) == {"ops", "unused_rules"}
    assert data["unused_rules"] == ["nothing/*"]
    assert data["ops"] == [
        {
            "name": "a/dense/kernel",
            "op": "dot_general",
            "decision": "float",
            "weights": None,
            "activations": None,
            "reason": "a rule or setting keeps it float",
        },
        {
            "name": "b/dense/kernel",
            "op": "dot_general",
            "decision": "integer",
            "weights": "int8 per-channel symmetric",
            "activations": "int8 per-token asymmetric",
            "reason": "",
        },
    ]


REASONS = {
    "dot_general is not among op_types": {"op_types": ["convolution"]},
    "target t has no quantized dot_general": {"device": {"ops": ("gather",)}},
    "target t has no asymmetric weights": {
        "weights__scheme": "asymmetric",
        "device": {"weight_schemes": ("symmetric",)},
    },
    "target t has no per-channel weights": {
        "weights__granularity": "per-channel",
        "device": {"weight_granularities": ("per-tensor",)},
    },
    "target t has no asymmetric activations": {
        "activations__scheme": "asymmetric",
        "device": {"activation_schemes": ("symmetric",)},
    },
    "target t has no dynamic quantization": {"device": {"dynamic": False}},
    "target t has no static quantization": {
        "activations__mode": "static",
        "device": {"static": False},
    },
    "no calibrated range; this op was not reached by the calibration data": {
        "activations__mode": "static"
    },
    "target t has no product int8 x int4": {"weights__format": "int4"},
    "target t has no product int16 x int8": {"activations__format": "int16"},
    "nf4 has no integer product": {"weights__format": "nf4"},
    "activations cannot be nf4": {"activations__format": "nf4"},
    "target t has no product with a float operand": {
        "activations__format": "float",
        "device": {"float_products": False},
    },
}


@pytest.mark.parametrize("expected", REASONS)
def test_reasons(expected):
    assert reason(DENSE, **REASONS[expected]).startswith(expected)


def test_min_elements():
    plan = planned(DENSE, min_elements=600)
    assert plan["a/dense/kernel"].decision == "integer"
    assert plan["b/dense/kernel"].reason == "512 elements, fewer than min_elements=600"


COLUMN = """(%x: tensor<4x64xf32>, %w: tensor<64x32x1xf32> {jq.weight = "w"})
    -> tensor<4x32xf32> {
  %0 = stablehlo.reshape %w : (tensor<64x32x1xf32>) -> tensor<64x32xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  return %1 : tensor<4x32xf32>
}"""


def test_a_weight_that_cannot_be_packed_is_int8():
    op = only(planned(COLUMN, "int4-weight-only"))
    assert op.operands[1].encoding.format == "int8"
    assert op.note == "w is int8: int4 is packed along its last axis, which is 1"
    for bits in (2, 3):
        op = only(planned(COLUMN, f"int{bits}-weight-only"))
        assert op.operands[1].encoding.format == "int8"
    assert only(planned(COLUMN, "mxfp4-weight-only")).operands[1].encoding.format == "mxfp4"


@pytest.mark.parametrize("pipeline", ["int4-weight-only", "mxfp4-weight-only"])
def test_a_column_that_is_reshaped_is_no_mistake(pipeline):
    loaded, program = load_pipeline(pipeline), load(COLUMN)
    target = Target(name="t", device=Device())
    plan = make_plan(program, loaded, target)
    levels = rewrite(program, loaded, PassContext(plan, loaded.settings, target))
    x = inputs_of(levels["float"])
    floats, codes = (evaluated(levels[level], *x)[0] for level in ("float", "integer"))
    # Half a step of the largest weight, with every factor; MXFP4 cuts off a quarter at most.
    half = {"int4-weight-only": 1 / 254, "mxfp4-weight-only": 1 / 4}[pipeline]
    bound = np.abs(x[0]).sum(1, keepdims=True) * np.abs(levels["float"].weights["w"]).max() * half
    assert (np.abs(codes - floats) <= bound * 1.001).all()


def test_products_of_activations():
    assert "activation_products=float" in only(planned(PRODUCT)).reason
    op = only(planned(PRODUCT, activation_products="int8"))
    assert op.decision == "integer" and op.to_dict()["weights"] is None
    stay = only(planned(PRODUCT, "int8-weight-only", activation_products="int8"))
    assert stay.reason == "activations stay float in this pipeline"


LOOKUP = """(%t: tensor<5x8xf32>, %i: tensor<3x1xi32>) -> tensor<3x8xf32> {
  %0 = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 8>}> : (tensor<5x8xf32>, tensor<3x1xi32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32> }"""
CONSTANTS = (
    "%t = stablehlo.iota dim = 0 : tensor<5x8xf32> %i = stablehlo.iota dim = 0 : tensor<3x1xi32>"
)
COMPLEX = """(%x: tensor<4x64xcomplex<f32>>, %w: tensor<64x4xcomplex<f32>> {jq.weight = "w"})
    -> tensor<4x4xcomplex<f32>> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<4x64xcomplex<f32>>, tensor<64x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>
  return %0 : tensor<4x4xcomplex<f32>> }"""


def test_reasons_name_what_the_op_is():
    assert "a lookup in what the model computes" in reason(LOOKUP)
    assert reason(f"() -> tensor<3x8xf32> {{{CONSTANTS}{LOOKUP.partition('{')[2]}")
    assert reason(COMPLEX) == "it multiplies complex numbers, which no format holds"


def test_what_stays_mostly_float_is_said():
    plan, settings = planned(COMPLEX), load_pipeline("int8-dynamic").settings
    said = mostly_float(load(COMPLEX), plan, settings)
    assert said == "2 KiB of 2 KiB of weights stay float, most of them in w: `explain` says why"
    assert mostly_float(load(DENSE), planned(DENSE), settings) is None
    assert mostly_float(load(COMPLEX), plan, load_pipeline("float").settings) is None


def test_integers_stay():
    text = PRODUCT.replace("f32", "i32")
    assert only(planned(text, activation_products="int8")).reason == "already integer"


def test_two_weights():
    text = """(%w: tensor<8x8xf32> {jq.weight = "w"}, %v: tensor<8x8xf32> {jq.weight = "v"})
        -> tensor<8x8xf32> {
      %0 = stablehlo.dot_general %w, %v, contracting_dims = [1] x [0]
           : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32> }"""
    assert only(planned(text)).reason == "both operands are constant"


def test_static_ranges_become_parameters():
    ranges = Ranges({f"{n}/dense/kernel:0": Range(-1.0, 4.1) for n in "ab"})
    op = planned(DENSE, "int8-static", ranges=ranges)["a/dense/kernel"]
    scale, zero = op.operands[0].parameters
    assert scale == pytest.approx(5.1 / 255) and zero == -128 + 50


def test_what_the_pipeline_says_gives_way_to_what_the_target_has():
    device = {"weight_granularities": ("per-tensor",), "activation_schemes": ("symmetric",)}
    op = planned(DENSE, device=device)["a/dense/kernel"]
    assert op.decision == "integer" and op.operands[1].encoding.block == (0, 0)
    assert op.operands[0].encoding.scheme == "symmetric"


def test_per_token_falls_back_to_what_the_target_has():
    op = planned(DENSE, device={"activation_granularities": ("per-tensor",)})["a/dense/kernel"]
    assert op.operands[0].encoding.block == (0, 0)


def test_unknown_op_types_are_an_error():
    with pytest.raises(UserError, match="'dot_generl' .*known: convolution, dot_general, gather"):
        planned(DENSE, op_types=["dot_generl"])


# Rules


@pytest.mark.parametrize(
    "pattern", ["a/*", "a/dense/kernel", "*/dense/kernel", "re:a/.*", "re:.*dense.kernel"]
)
def test_patterns(pattern):
    plan = planned(DENSE, rules=(f"{pattern}: float",))
    assert plan["a/dense/kernel"].decision == "float"
    matches_both = pattern.startswith(("*", "re:."))
    assert (plan["b/dense/kernel"].decision == "float") == matches_both
    assert plan.unused_rules == ()


def test_the_first_rule_that_matches_decides():
    rules = ("a/*: weights.granularity=per-tensor", "*: float", "b/*: weights.format=int8")
    plan = planned(DENSE, rules=rules)
    assert plan["a/dense/kernel"].operands[1].encoding.block == (0, 0)
    assert plan["b/dense/kernel"].decision == "float"
    assert plan.unused_rules == plan.overruled == ("b/*",)


def test_a_rule_by_op_type():
    assert reason(DENSE, rules=("dot_general: float",)) == "a rule or setting keeps it float"


def test_a_bad_regular_expression_is_an_error_of_one_line():
    with pytest.raises(UserError, match=r"bad regular expression in rule 're:\('") as info:
        planned(DENSE, rules=("re:(: float",))
    assert "\n" not in str(info.value)


# Weights that several ops read

TIED = """(%i: tensor<3x1xi32>, %x: tensor<3x32xf32>,
           %w: tensor<64x32xf32> {jq.weight = "embedding"})
    -> (tensor<3x32xf32>, tensor<3x64xf32>) {
  %0 = "stablehlo.gather"(%w, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 32>}> {jq.name = "lookup"}
    : (tensor<64x32xf32>, tensor<3x1xi32>) -> tensor<3x32xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] {jq.name = "head"}
       : (tensor<3x32xf32>, tensor<64x32xf32>) -> tensor<3x64xf32>
  return %0, %1 : tensor<3x32xf32>, tensor<3x64xf32>
}"""


def test_tied_weights_are_stored_once():
    plan = planned(TIED)
    assert [op.decision for op in plan.ops] == ["weight-only", "integer"]
    assert list(plan.weights) == ["embedding"] and plan.weights["embedding"].block == (1, 0)
    assert all(
        p.encoding == plan.weights["embedding"]
        for op in plan.ops
        for p in op.operands.values()
        if p.weight
    )


TWO_WAYS = """(%x: tensor<4x64xf32>, %w: tensor<64x64xf32> {jq.weight = "w"})
    -> tensor<4x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {jq.name = "first"}
       : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1] {jq.name = "second"}
       : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
  return %1 : tensor<4x64xf32> }"""


def test_tied_weights_that_want_different_axes_share_one_scale():
    plan = planned(TWO_WAYS)
    assert plan.weights["w"].block == (0, 0)
    assert {op.decision for op in plan.ops} == {"integer"}


def test_a_use_that_a_rule_keeps_float_reads_the_float_weight():
    """A rule speaks of an op: the others are quantized as ever."""
    plan = planned(TIED, rules=("lookup: float",))
    assert plan["lookup"].decision == "float" and plan["head"].decision == "integer"
    assert list(plan.weights) == ["embedding"]
    assert plan["lookup"].float_weights == ("embedding",) and not plan["head"].float_weights


def test_what_op_types_leaves_out_reads_the_float_weight():
    plan = planned(TIED, op_types=("dot_general",))
    assert plan["lookup"].decision == "float" and plan["head"].decision == "integer"
    assert plan["lookup"].float_weights == ("embedding",) and not plan["head"].float_weights


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("mxint8", "another op stores the same weight as mxint8"),
        ("q8_0", "another op stores the same weight as q8_0"),
    ],
)
def test_the_first_use_of_a_tied_weight_decides_its_format(format, expected):
    plan = planned(TIED, rules=(f"lookup: weights.format={format}",))
    assert plan.weights["embedding"].format == format
    assert plan["head"].decision == "weight-only" and plan["head"].reason == expected


def test_uses_in_blocks_along_different_axes():
    settings = {"weights__format": "int4", "weights__granularity": "per-block"}
    plan = planned(TWO_WAYS, device={"products": ("int8 x int4",)}, **settings)
    assert plan.weights["w"].block == (32, 1)
    assert plan["first"].decision == "integer"
    assert plan["second"].reason == (
        "another op reads the same weight in blocks along another axis"
    )


# Accumulators


def dot(terms: int) -> str:
    return f"""(%x: tensor<1x{terms}xf32>, %y: tensor<1x{terms}xf32>) -> tensor<1x1xf32> {{
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] {{jq.name = "d"}}
           : (tensor<1x{terms}xf32>, tensor<1x{terms}xf32>) -> tensor<1x1xf32>
      return %0 : tensor<1x1xf32> }}"""


@pytest.mark.parametrize(
    ("scheme", "largest"), [("symmetric", 2**31 // 2**14 - 1), ("asymmetric", 2**31 // 255**2)]
)
def test_sums_that_can_overflow_are_declined(scheme, largest):
    settings = {"activation_products": "int8", "activations__scheme": scheme}
    assert only(planned(dot(largest), **settings)).decision == "integer"
    assert (
        only(planned(dot(largest + 1), **settings)).reason
        == f"{largest + 1} products can overflow an int32 accumulator"
    )


WIDE = """(%x: tensor<1x70000xf32>, %w: tensor<70000x2xf32> {jq.weight = "w"})
    -> tensor<1x2xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<1x70000xf32>, tensor<70000x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32> }"""


def test_the_codes_of_a_weight_prove_that_sums_fit():
    """70,000 codes of 127 reach 2.3e9; those of normal numbers about 7e8."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((70_000, 2)).astype(np.float32)
    loaded, target = load_pipeline("int8-dynamic"), Target(name="t")
    (op,) = make_plan(load(WIDE, {"w": normal}), loaded, target).ops
    assert op.decision == "integer"
    normal[:, 1] = -1
    (op,) = make_plan(load(WIDE, {"w": normal}), loaded, target).ops
    assert op.reason == "70000 products can overflow an int32 accumulator"


def test_codes_that_were_chosen_later_are_proved_too():
    weight = np.random.default_rng(0).standard_normal((70_000, 2)).astype(np.float32)
    program, loaded, target = (
        load(WIDE, {"w": weight}),
        load_pipeline("int8-dynamic"),
        Target(name="t"),
    )
    decided = make_plan(program, loaded, target)
    enc = decided.weights["w"]
    chosen = get_format("int8").encode(weight, enc)
    chosen["codes"] = np.full_like(chosen["codes"], 127)
    program.chosen["w"] = chosen
    cx = PassContext(decided, loaded.settings, target)
    with pytest.raises(UserError, match=r"a sum can reach 2266950000, .*\[w\]"):
        rewrite(program, loaded, cx)


def test_sixteen_bits_have_a_wide_accumulator():
    settings = {"activation_products": "int8", "activations__format": "int16"}
    op = only(planned(dot(1 << 20), device={"products": ("int16 x int16",)}, **settings))
    assert op.decision == "integer"


def test_batch_groups_have_no_integer_form():
    text = """(%x: tensor<2x5x3xf32>, %w: tensor<3x3x4xf32> {jq.weight = "w"})
        -> tensor<1x3x4xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {} {batch_group_count = 2 : i64, feature_group_count = 1 : i64}
        : (tensor<2x5x3xf32>, tensor<3x3x4xf32>) -> tensor<1x3x4xf32>
      return %0 : tensor<1x3x4xf32> }"""
    assert "batch groups" in only(planned(text)).reason


def test_minima_have_integer_products_but_no_convolutions():
    def fn(p, x):
        y = jax.lax.conv_general_dilated(
            x, p["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y.reshape(2, -1) @ p["w"]

    rng = np.random.default_rng(0)
    params = {name: rng.standard_normal(s) for name, s in (("k", (3, 3, 4, 8)), ("w", (128, 8)))}
    params = {name: a.astype(np.float32) for name, a in params.items()}
    model = jq.Model(fn, params, (np.ones((2, 4, 4, 4), np.float32),))
    settings = ["weights.format=uint4_min", "weights.granularity=per-channel"]
    convolution, product = jq.plan(model, pipeline="int8-dynamic", settings=settings).ops
    assert (convolution.decision, product.decision) == ("float", "integer")
    assert convolution.reason == "convolution has no integer form with minima of the weight"


def test_matrices_that_are_looked_up_may_be_multiplied_without_a_sum():
    """No axis is contracted then; what is stored is decoded."""
    weight = np.random.default_rng(0).standard_normal((4, 8, 32)).astype(np.float32)
    enc = Encoding("int8", weight.shape, (1, 1, 0))
    stack = QuantizedTensor(enc, get_format("int8").encode(weight, enc))

    def fn(w, x, i):
        return jax.lax.dot_general(x, w[i], (((), ()), ((0,), (0,))))

    model = jq.Model(fn, stack, (np.zeros((2, 5), np.float32), np.zeros(2, np.int32)))
    found = {op.op: op.decision for op in jq.plan(model, pipeline="int8-weight-only").ops}
    assert found["gather"] == "weight-only"
