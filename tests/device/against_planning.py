"""The verdict of `jaxq check` without data, against planning with calibrated ranges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.base.progress import Stages
from jq.device.assumed import Planned
from jq.device.checking import _refused
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.passes.base import run_all
from tests.passes.test_integer_only import COLUMNS, ONE, PARAMS, ROWS, TWO
from tests.support.targets import FEW_AXES, LIMITS, PER_TENSOR_PRODUCTS

RNG = np.random.default_rng(0)
TARGETS = (
    "llvm-cpu",
    "llvm-cpu-generic",
    "llvm-cpu-aarch64",
    "npu-int8",
    "npu-per-tensor",
    PER_TENSOR_PRODUCTS,
    LIMITS,
    FEW_AXES,
)
NHWC = ("NHWC", "HWIO", "NHWC")


def _steps(*names: str) -> jq.Model:
    """Each step with a product in front of it and behind: what falls back lies between codes."""

    def fn(p: Any, x: Any) -> Any:
        for i, name in enumerate(names):
            y = x @ p[f"w{i % 4}"]
            x = ONE[name](p, i % 4, y) if name in ONE else TWO[name](p, i % 4, y, x)
        return x @ p["w3"]

    return jq.Model(fn, PARAMS, (_data((ROWS, COLUMNS)),))


def _convolution(
    stride: int = 1, groups: int = 1, dilation: int = 1, size: int = 3, padding: Any = "SAME"
) -> jq.Model:
    def fn(p: Any, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x,
            p["kernel"],
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            dimension_numbers=NHWC,
            feature_group_count=groups,
        )
        y = jax.nn.relu(y + p["bias"])
        return y.mean((1, 2)) @ p["head"]

    params = {
        "kernel": _data((size, size, 8 // groups, 8)),
        "bias": _data((8,)),
        "head": _data((8, 4)),
    }
    return jq.Model(fn, params, (_data((1, 12, 12, 8)),))


def _axes(name: str) -> jq.Model:
    """Elementwise ops, softmax and a sum on five axes: between products, at the end, or alone."""

    def ops(x: Any) -> Any:
        return jax.nn.softmax(jnp.tanh(x) + x) * 2

    def fn(p: Any, x: Any) -> Any:
        if name == "alone":
            return ops(x)
        x = ops((x @ p["w0"]).reshape(ROWS, 1, 2, 1, -1))
        return x if name == "end" else x.reshape(ROWS, -1) @ p["w1"]

    shape = (ROWS, 1, 2, 1, 4) if name == "alone" else (ROWS, COLUMNS)
    return jq.Model(fn, PARAMS, (_data(shape),))


def _attention(p: Any, x: Any) -> Any:
    q, k, v = (x @ p[f"w{i}"] for i in range(3))
    return jax.nn.softmax(q @ k.T) @ v @ p["w3"]


def _multiplied(p: Any, x: Any) -> Any:
    return jnp.cumsum(jnp.cumprod(x @ p["w0"], axis=-1), axis=-1) @ p["w1"]


def _data(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def models() -> dict[str, jq.Model]:
    """Thirty and more: one step each, convolutions, attention, what has no integer form."""
    found = {name: _steps(name) for name in (*ONE, *TWO)}
    found |= {
        "conv": _convolution(),
        "conv_stride": _convolution(stride=4),
        "conv_groups": _convolution(groups=2),
        "depthwise": _convolution(groups=8),
        "conv_dilated": _convolution(dilation=2),
        "conv_padded": _convolution(padding=((0, 3), (2, 1))),
        "attention": jq.Model(_attention, PARAMS, (_data((ROWS, COLUMNS)),)),
        **{f"axes_{name}": _axes(name) for name in ("between", "end", "alone")},
        "multiplied": jq.Model(_multiplied, PARAMS, (_data((ROWS, COLUMNS)),)),
        "mixed": _steps("gelu", "divide", "turn", "layer_norm", "join", "softmax"),
    }
    return found


def compared(model: jq.Model, target: str, **options: Any) -> tuple[list[Any], list[Any]]:
    """Name, op and reason of what is refused: without data, and by the plan with data."""
    found = jq.check(model, target, **options)
    data = [tuple(2 * x for x in model.example_inputs), model.example_inputs]
    pipeline = found["pipeline"]
    settings = options.get("settings")
    job = prepare_job(model, Request(pipeline, target, settings, None, data), recover=False)
    plan = plan_job(job, Stages())
    program, passes = job.program.clone(), job.pipeline.passes
    kept = [p for p in (*passes["qdq"], *passes["integer"]) if p.name != "verify-integer"]
    run_all(kept, program, job.context(plan))
    then = list(_refused(Planned(job, plan, program)))
    if job.target.device.integer_only or job.pipeline.settings.integer_only:
        said = jq.explain(
            model, pipeline=pipeline, target=target, calibration=data, settings=settings
        )
        assert ("refused" in said) == bool(found["refused"]), said.get("refused")
    else:
        kinds = ("dot_general", "convolution")
        left = [op for op in plan.ops if op.op in kinds and op.decision != "integer"]
        assert [op.name for op in left if "activation_products" not in op.reason] == [
            row["name"] for row in then if row["op"] in kinds
        ]
    return _keys(found["refused"]), _keys(then)


def _keys(rows: list[dict[str, str]]) -> list[Any]:
    return [(row["name"], row["op"], row["reason"]) for row in rows]
