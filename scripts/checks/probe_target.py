"""Every limit of a target file against the vendor's compiler: the smallest op on either side of it.

    scripts/check.py probe_target                        # Ethos-U55, U65 and U85, by Arm's Vela
    scripts/check.py probe_target --device ethos-u85-256

Of each limit that the file states, one op is just within it and one just beyond it; besides these,
ops and functions that the file allows or leaves out, and windows that are large. Each is written as
TOSA (what is refused, for a target without limits), and given to Vela. `jaxq check` and Vela have
to say the same: the device computes it, or it does not. A line each; the exit code is 1 where fewer
than 98 % agree.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

import jq
from checks.exports import DEVICES, vela
from jq.target.device_table import Device
from jq.target.target import load_target

WITHOUT_LIMITS = "npu-int8"
SHARE = 0.98
NHWC = ("NHWC", "HWIO", "NHWC")
Array = Any
RNG = np.random.default_rng(0)


def _model(f: Callable[..., Array], shape: Any, *weight: int, inputs: int = 1) -> jq.Model:
    xs = tuple(RNG.standard_normal(shape, np.float32) for _ in range(inputs))
    params = {"w": RNG.standard_normal(weight, np.float32)} if weight else {}
    return jq.Model(f, params, xs, calibration=[xs])


def conv(
    kernel: tuple[int, int] = (1, 1), stride: int = 1, channels: int = 2, groups: int = 1
) -> jq.Model:
    """A convolution whose image is as large as its filter, or four pixels."""
    height, width = (max(4, k) for k in kernel)
    features = 2 * groups if groups > 1 else 2

    def apply(p: dict[str, Array], x: Array) -> Array:
        return jax.lax.conv_general_dilated(
            x, p["w"], (stride, stride), "VALID", dimension_numbers=NHWC, feature_group_count=groups
        )

    inner = channels // groups
    return _model(apply, (1, height, width, channels), *kernel, inner, features)


def depthwise(kernel: tuple[int, int] = (1, 1), stride: int = 1) -> jq.Model:
    return conv(kernel, stride, 2, 2)


def pool(kernel: tuple[int, int] = (2, 2), stride: int = 1) -> jq.Model:
    """The largest of windows, of what a convolution gives."""
    height, width = (max(4, k) for k in kernel)
    window, strides = (1, *kernel, 1), (1, stride, stride, 1)
    return _model(
        lambda p, x: jax.lax.reduce_window(
            x @ p["w"], -jnp.inf, jax.lax.max, window, strides, "VALID"
        ),
        (1, height, width, 2),
        2,
        2,
    )


def dense(columns: int = 2) -> jq.Model:
    return _model(lambda p, x: x @ p["w"], (2, 4), 4, columns)


def product() -> jq.Model:
    return _model(lambda p, x, y: x @ y, (4, 4), inputs=2)


def summed(*shape: int) -> jq.Model:
    return _model(lambda p, x, y: x + y, shape, inputs=2)


def one(f: Callable[[Array], Array]) -> jq.Model:
    """Behind a product, so that it reads codes."""
    return _model(lambda p, x: f(x @ p["w"]), (2, 8), 8, 8)


WINDOWS: dict[str, Callable[..., jq.Model]] = {
    "convolution": conv,
    "depthwise": depthwise,
    "reduce_window": pool,
}
# Ops and functions that a file names or leaves out, and windows beyond older limits.
OTHERS: dict[str, Callable[[], jq.Model]] = {
    "convolution with stride 4": lambda: conv(stride=4),
    "convolution with kernel 65x1": lambda: conv((65, 1)),
    "convolution with kernel 1x65": lambda: conv((1, 65)),
    "convolution with 2 groups": lambda: conv((2, 2), 1, 4, 2),
    "depthwise with stride 4": lambda: depthwise(stride=4),
    "depthwise with kernel 65x1": lambda: depthwise((65, 1)),
    "pool with stride 4": lambda: pool(stride=4),
    "pool with window 257x1": lambda: pool((257, 1)),
    "sum of two, 4 axes": lambda: summed(2, 2, 2, 2),
    "sum of two, 5 axes": lambda: summed(2, 2, 2, 2, 2),
    "sum of two, 6 axes": lambda: summed(2, 2, 2, 2, 2, 2),
    "sum of two along 65536": lambda: summed(1, 65536),
    "product of two activations": product,
    "tanh": lambda: one(jnp.tanh),
    "softmax": lambda: one(jax.nn.softmax),
    "maximum": lambda: one(lambda x: jnp.maximum(x, 0.5)),
    "concatenate": lambda: one(lambda x: jnp.concatenate([x, x], 1)),
    "transpose": lambda: one(lambda x: x.T),
    "slice": lambda: one(lambda x: x[:, 1:5]),
    "pad": lambda: one(lambda x: jnp.pad(x, ((0, 0), (1, 2)))),
    "mean": lambda: one(lambda x: x.mean(1)),
    "reverse": lambda: one(lambda x: x[:, ::-1]),
    "largest along an axis": lambda: one(lambda x: x.max(1)),
}


def cases(device: Device) -> Iterator[tuple[str, Callable[[], jq.Model]]]:
    """The models of both sides of each limit."""
    for kind, limits in device.limits.items():
        window, stated = WINDOWS.get(kind), limits.model_fields_set
        for more in (0, 1):
            where = f"{kind}, {'beyond' if more else 'within'}"
            if window and "max_stride" in stated and limits.max_stride:
                by = limits.max_stride + more
                yield f"{where} max_stride", lambda w=window, by=by: w(stride=by)
            if window and "max_kernel" in stated and limits.max_kernel:
                k = limits.max_kernel + more
                yield f"{where} max_kernel, high", lambda w=window, k=k: w((k, 1))
                yield f"{where} max_kernel, wide", lambda w=window, k=k: w((1, k))
            if kind == "default" and limits.max_rank:
                shape = (*[2] * more, *[2] * limits.max_rank)
                yield f"{where} max_rank", lambda s=shape: summed(*s)
            if kind == "default" and limits.max_size:
                size = limits.max_size + more
                yield f"{where} max_size", lambda s=size: summed(1, s)
            if kind == "dot_general" and "constant_weights" in stated:
                yield f"{where} constant_weights", product if more else dense
        if kind == "convolution" and "groups" in stated:
            yield "convolution, within groups", depthwise
            yield "convolution, beyond groups", lambda: conv((2, 2), 1, 4, 2)
    yield from OTHERS.items()


def of_vela(model: jq.Model, device: str, target: str) -> tuple[bool | None, str]:
    """True if all of it runs on the device; None where it cannot be written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tosa"
        try:
            jq.export(model, path, target=target, settings={"recovery": False})
        except jq.UserError as error:
            return None, str(error)
        said, good = vela(path, device)
        return good, said


def main(
    device: Annotated[str, typer.Option(help="As Vela calls them, by comma.")] = DEVICES,
) -> None:
    same, number = 0, 0
    for each in device.split(","):
        target = load_target(each.rpartition("-")[0])
        for name, make in cases(target.device):
            refused = jq.check(make(), target.name)["refused"]
            ours = not refused
            theirs, said = of_vela(make(), each, target.name if ours else WITHOUT_LIMITS)
            if theirs is None:
                print(f"{each}, {name}: not written: {said}", flush=True)
                continue
            number, same = number + 1, same + (ours == theirs)
            why = refused[0]["reason"] if refused else "accepts"
            differs = "" if ours == theirs else f" DIFFERS: check {why};"
            print(f"{each}, {name}:{differs} {said}", flush=True)
    print(f"{same} of {number} verdicts are the same")
    raise typer.Exit(int(same < SHARE * number))
