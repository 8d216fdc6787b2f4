"""`jaxq check`: every refusal is what planning then does; one table, one document, exit code 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.cli.app import main
from jq.target.target import load_target
from tests.device.against_planning import TARGETS, compared, models
from tests.passes.test_integer_only import PARAMS
from tests.support.programs import evaluated
from tests.support.targets import LIMITS, PER_TENSOR_PRODUCTS

pytestmark = pytest.mark.usefixtures("quick_xla")

# What stands on five axes there: softmax, which is one function, a table, a sum and a factor.
SOFTMAX, ON_AXES = "div", ("tanh", "add", "mul")
# Of `scripts/check.py refusals`, which has every model and target.
SAMPLE = {
    "conv_groups": (LIMITS, ["kernel"]),
    "multiplied": ("npu-int8", ["cumprod/reduce_window"]),
    "divide": (PER_TENSOR_PRODUCTS, ["div"]),
    "attention": ("npu-per-tensor", []),
    "conv": (TARGETS[-1], ["kernel", "add", "relu/max", "reduce_sum"]),
    "axes_end": (TARGETS[-1], [SOFTMAX, "reshape", *ON_AXES]),
    "axes_alone": (TARGETS[-1], [SOFTMAX, *ON_AXES]),
}
CPU = """
[device]
products = ["int8 x int8"]
[device.limits.{kind}]
{limit}
"""


@pytest.mark.parametrize("name", SAMPLE)
def test_a_refusal_is_what_planning_does(name: str) -> None:
    target, names = SAMPLE[name]
    found, then = compared(models()[name], target)
    assert found == then and [op for op, _, _ in found] == names


def test_lookups_on_a_device_without_any(tmp_path: Path) -> None:
    """In what is computed they are refused; in a table they stay with the host."""
    w = np.eye(4, dtype=np.float32)

    def apply(p, i, x):
        return {"computed": (x @ p["w"])[:, i], "stored": p["w"][i] @ p["w"]}

    def one(name):
        inputs = np.array([3, 1], np.int32), np.ones((2, 4), np.float32)
        return jq.Model(lambda p, *a: apply(p, *a)[name], {"w": w}, inputs, calibration=[inputs])

    (row,) = jq.check(one("computed"), "ethos-u55")["refused"]
    assert (row["op"], row["reason"]) == ("gather", "target ethos-u55 has no quantized gather")
    assert not jq.check(one("computed"), "ethos-u85")["refused"]
    assert not jq.check(one("stored"), "ethos-u55")["refused"]
    found = jq.export(one("stored"), tmp_path / "m.tosa", target="ethos-u55")
    assert "gather_rows" not in found["operators"]


def product(x: np.ndarray, shape: tuple[int, ...]) -> jq.Model:
    return jq.Model(lambda p, x: x @ p["w"], {"w": np.ones(shape, np.float32)}, (x,))


@pytest.mark.parametrize(
    ("name", "kind", "limit", "reason", "help"),
    [
        ("conv", "convolution", "channel_multiple = 16", "8 channels, no multiple", "to 16, 16"),
        ("conv", "convolution", "max_channels = 4", "channels 8; at most 4", "split"),
        ("conv", "convolution", "max_rank = 3", "rank 4; at most 3", "reshape"),
        ("conv", "convolution", "max_size = 8", "axis 12; at most 8", "sizes"),
        ("conv", "convolution", "max_kernel = 2", "kernel 3; at most 2", "split"),
        ("conv", "convolution", "max_kernel_area = 8", "kernel area 9; at most 8", "split"),
        ("conv_stride", "convolution", "max_stride = 3", "stride 4; at most 3", "strides"),
        ("conv_dilated", "convolution", "max_dilation = 1", "dilation 2; at most 1", "dilation"),
        ("conv_dilated", "convolution", "max_kernel = 4", "kernel 5; at most 4", "split"),
        ("conv_padded", "convolution", "equal_padding = true", "padding 0+3, 2+1", "pad by"),
        ("conv_groups", "convolution", "groups = 'none'", "2 groups", "each group"),
        ("conv", "convolution", "products = ['int16 x int8']", "int8 x int8 in", "int16 x int8"),
        ("depthwise", "depthwise", "max_kernel = 2", "depthwise with kernel 3", "split"),
        ("dense", "dot_general", "max_channels = 7", "channels 8; at most 7", "split"),
    ],
)
def test_each_limit(tmp_path: Path, name: str, kind: str, limit: str, reason: str, help: str):
    path = tmp_path / "made-up.toml"
    path.write_text(CPU.format(kind=kind, limit=limit))
    model = models()[name]
    first, *_ = jq.check(model, str(path))["refused"]
    assert reason in first["reason"] and help in first["help"], first
    assert "made-up" in first["reason"]
    # One less is no limit.
    path.write_text(CPU.format(kind="reduce", limit=limit))
    assert jq.check(model, str(path))["refused"] == []


def test_a_device_with_floats_that_is_given_an_integer_only_pipeline(tmp_path: Path) -> None:
    """Refusals are those of `compile`; ops computed in float count where floats are allowed."""
    path = tmp_path / "made-up.toml"
    path.write_text(CPU.format(kind="default", limit="max_rank = 3"))
    model = models()["axes_between"]
    found, then = compared(model, str(path), pipeline="int8-static-integer-only")
    assert found == then and [SOFTMAX, "reshape", *ON_AXES, "reshape#2"] == [
        op for op, _, _ in found
    ]
    early = compared(model, str(path), pipeline="int8-static", settings=["placement=early"])
    assert early[0] == early[1] and {op for op, _, _ in found} <= {op for op, _, _ in early[0]}
    assert jq.check(model, str(path), pipeline="int8-static")["refused"] == []


def test_what_it_returns_prints_as_a_table() -> None:
    found = jq.check(models()["multiplied"], "npu-int8")
    shown, name = str(found), "cumprod/reduce_window"
    assert repr(found) == shown and name in shown and "{" not in shown
    assert shown.endswith("npu-int8 with int8-static-integer-only: 1 of 7 ops refused")
    assert name in found._repr_html_() and json.dumps(found) == json.dumps(dict(found))
    assert " with int8-static-integer-only: none of " in str(
        jq.check(models()["dense"], "npu-int8")
    )


def test_groups_of_one_channel_may_be_all_there_are(tmp_path: Path) -> None:
    path = tmp_path / "made-up.toml"
    path.write_text(CPU.format(kind="convolution", limit="groups = 'depthwise'"))
    assert jq.check(models()["depthwise"], str(path))["refused"] == []
    assert len(jq.check(models()["conv_groups"], str(path))["refused"]) == 1


def test_weights_of_one_kind_of_op_get_the_granularity_that_it_has() -> None:
    model = models()["conv"]
    plan = jq.plan(
        model,
        pipeline="int8-static-integer-only",
        target=PER_TENSOR_PRODUCTS,
        calibration=[model.example_inputs],
    )
    assert [op.operands[1].encoding.granularity for op in plan.ops] == ["per-channel", "per-tensor"]


def test_int16_activations_have_no_zero_point_where_it_has_to_be_zero() -> None:
    settings, model = ["activations.format=int16"], models()["dense"]
    found = jq.plan(
        model,
        pipeline="int8-static-integer-only",
        target=PER_TENSOR_PRODUCTS,
        calibration=[model.example_inputs],
        settings=settings,
    )
    for op in found.ops:
        assert op.decision == "integer" and op.operands[0].parameters[1] is None
    asked = [*settings, "activations.scheme=asymmetric"]
    for row in jq.check(model, PER_TENSOR_PRODUCTS, settings=asked)["refused"]:
        assert "no asymmetric activations" in row["reason"] and "symmetric" in row["help"]


def test_a_bias_wider_than_the_device_has_is_added_behind(tmp_path: Path) -> None:
    path = tmp_path / "narrow.toml"
    path.write_text(Path("targets/npu-int8.toml").read_text() + "bias_bits = 8\n")
    params = {"w": PARAMS["w0"], "b": np.arange(8, dtype=np.float32)}
    x = np.eye(8, dtype=np.float32)
    model = jq.Model(lambda p, x: x @ p["w"] + p["b"], params, (x,))
    how: Any = {"pipeline": "int8-static-integer-only", "settings": {"recovery": False}}
    how["calibration"] = [(x,)]
    targets = "npu-int8", str(path)
    programs = [jq.rewrite(model, target=target, **how)["integer"] for target in targets]
    joined, behind = (program.weights["w:bias"] for program in programs)
    assert np.abs(joined).max() >= 128 and not np.array_equal(joined, behind)
    first, second = (evaluated(program, x)[0] for program in programs)
    step = np.diff(np.unique(first)).min()
    assert np.abs(first - second).max() < 1.5 * step


def test_the_first_pipeline_that_the_device_accepts() -> None:
    model = models()["dense"]
    for target, pipeline in {
        "llvm-cpu": "int8-dynamic",
        "npu-per-tensor": "int8-dynamic",
        "npu-int8": "int8-static-integer-only",
    }.items():
        assert jq.check(model, target)["pipeline"] == pipeline


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(
        "import numpy as np, jq\n"
        "model = jq.Model(lambda p, x: x[:, ::-1] @ p, np.eye(4, dtype=np.float32),"
        " (np.ones((2, 4), np.float32),))\n"
    )
    name = f"{tmp_path}/own.py:model"
    assert main(["check", name, "--target", "npu-int8", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["refused"] == [] and found["ops"] == 2
    args = ["check", name, "--target", "npu-per-tensor", "--pipeline", "int8-static"]
    assert main([*args, "--json", "-q"]) == 1
    (row,) = json.loads(capsys.readouterr().out)["refused"]
    assert row["reason"] == "target npu-per-tensor has no static quantization"
    assert row["help"] == "set activations.mode=dynamic"
    assert set(row) == {"name", "op", "shape", "reason", "help"} and "2x4, 4x4" in row["shape"]
    assert main(["check", name, "--target", "npu-int9"]) == 2


@pytest.mark.parametrize("key", ["strides", "max_stride = 0", "products = ['int8']", "ops = 3"])
def test_a_target_file_that_says_nonsense_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(CPU.format(kind="convolution", limit=key if "=" in key else f"{key} = 1"))
    with pytest.raises(UserError, match=r"device\.limits\.convolution|unknown key"):
        load_target(str(path))
