"""Convolutions on codes (strided, dilated, transposed, grouped) against NumPy's integers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.ir.ops.collect import collect
from tests.ir.ops.integers import Case, check

SCHEMES = ("symmetric", "asymmetric")


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution, one entry for each spatial dimension."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilate: tuple[int, ...]
    rhs_dilate: tuple[int, ...]
    reverse: tuple[bool, ...]

    def text(self) -> str:
        reverse = [str(r).lower() for r in self.reverse]
        fields = {
            "stride": list(self.stride),
            "pad": [list(p) for p in self.padding],
            "lhs_dilate": list(self.lhs_dilate),
            "rhs_dilate": list(self.rhs_dilate),
            "reverse": f"[{', '.join(reverse)}]",
        }
        return ", ".join(f"{k} = {v}" for k, v in fields.items())


def convolve(x: np.ndarray, w: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """x [N, C, space...] with w [O, C/groups, space...] by the definition: -> [N, O, space...]."""
    space = x.ndim - 2
    dilated = [
        max((n - 1) * d + 1, 0) if n else 0
        for n, d in zip(x.shape[2:], window.lhs_dilate, strict=True)
    ]
    full = np.zeros((*x.shape[:2], *dilated), np.int64)
    full[(slice(None), slice(None), *(slice(None, None, d) for d in window.lhs_dilate))] = x
    for axis, (low, high) in enumerate(window.padding, start=2):
        width = [(0, 0)] * full.ndim
        width[axis] = (max(low, 0), max(high, 0))
        full = np.pad(full, width)
        stop = full.shape[axis] + min(high, 0)
        full = np.take(full, range(-min(low, 0), stop), axis)
    w = np.flip(w, [a + 2 for a in range(space) if window.reverse[a]])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], window.rhs_dilate, strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(full.shape[2:], reach, window.stride, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    inside, outside = x.shape[1] // groups, w.shape[0] // groups
    for position in itertools.product(*map(range, sizes)):
        cut = tuple(
            slice(p * s, p * s + r, d)
            for p, s, r, d in zip(position, window.stride, reach, window.rhs_dilate, strict=True)
        )
        for g in range(groups):
            some = slice(g * outside, (g + 1) * outside)
            values = full[(slice(None), slice(g * inside, (g + 1) * inside), *cut)]
            flat = values.reshape(len(values), -1) @ w[some].reshape(outside, -1).T
            out[(slice(None), some, *position)] = flat
    return out


def conv_case(
    orders: tuple[str, str, str],
    sizes: dict[str, int],
    window: Window,
    groups: int,
    weight: int | None,
    override: dict[str, object],
) -> Case:
    """`orders` are dimension numbers in StableHLO's letters: ("b01f", "01io", "b01f")."""
    x_order, w_order, y_order = orders
    space = [c for c in x_order if c.isdigit()]
    x_shape = tuple(sizes[c] if c in "bf" else sizes["x" + c] for c in x_order)
    w_shape = tuple(
        {"i": sizes["f"] // groups, "o": sizes["o"]}.get(c) or sizes["k" + c] for c in w_order
    )
    to_x = [x_order.index(c) for c in ["b", "f", *sorted(space)]]
    to_w = [w_order.index(c) for c in ["o", "i", *sorted(space)]]
    from_y = [["b", "f", *sorted(space)].index(c) for c in y_order]

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return convolve(a.transpose(to_x), b.transpose(to_w), window, groups).transpose(from_y)

    def scales(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        samples = a.transpose(to_x).reshape(sizes["b"], -1)[:, 0]
        channels = b.transpose(to_w).reshape(sizes["o"], -1)[:, 0]
        outer = samples[:, None] * channels
        return outer.reshape(*outer.shape, *[1] * len(space)).transpose(from_y)

    y_shape = reference(np.zeros(x_shape, np.int64), np.zeros(w_shape, np.int64)).shape
    numbers = f"{_letters(x_order)}x{_letters(w_order)}->{_letters(y_order)}"
    op = (
        f"stablehlo.convolution(LHS, RHS) dim_numbers = {numbers}, window = {{{window.text()}}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64, ATTRS}}"
    )
    return Case(op, (x_shape, w_shape, y_shape), weight, override, reference, scales)


def _letters(order: Sequence[str]) -> str:
    return f"[{', '.join(order)}]"


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    space = "012"[:rank]
    kind = draw(st.sampled_from(["plain", "grouped", "depthwise", "multiplier"]))
    groups = 1 if kind == "plain" else draw(st.sampled_from([2, 3]))
    inside = draw(st.integers(1, 3)) if kind in ("plain", "grouped") else 1
    outside = {"depthwise": 1, "multiplier": 2}.get(kind) or draw(st.integers(2, 3))
    sizes = {"b": draw(st.integers(1, 3)), "f": groups * inside, "o": groups * outside}
    axes = []
    for c in space:
        kernel, rhs_dilate = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))
        stride, lhs_dilate = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 3)]))
        padding = draw(st.tuples(st.integers(-1, 2), st.integers(-1, 2)))
        reach = (kernel - 1) * rhs_dilate + 1
        # At least one position of the window.
        size = draw(st.integers(3, 6))
        while (size - 1) * lhs_dilate + 1 + sum(padding) < reach:
            size += 1
        sizes |= {"x" + c: size, "k" + c: kernel}
        axes.append(
            (stride, padding, lhs_dilate, rhs_dilate, draw(st.sampled_from([False, False, True])))
        )
    orders = draw(
        st.sampled_from(
            [
                ("b" + space + "f", space + "io", "b" + space + "f"),
                ("bf" + space, "oi" + space, "bf" + space),
                ("f" + space + "b", "i" + space + "o", space + "bf"),
            ]
        )
    )
    override = {
        "weights.format": draw(st.sampled_from(["int8", "int8", "int4", "int16"])),
        "weights.scheme": draw(st.sampled_from(SCHEMES)),
        "weights.granularity": draw(st.sampled_from(["per-tensor", "per-channel"])),
        "activations.format": draw(st.sampled_from(["int8", "int8", "int16"])),
        "activations.mode": draw(st.sampled_from(["static", "dynamic"])),
        "activations.scheme": draw(st.sampled_from(SCHEMES)),
        "activations.granularity": draw(st.sampled_from(["per-tensor", "per-token"])),
    }
    weight = draw(st.sampled_from([1, 1, 1, None]))
    return conv_case(orders, sizes, Window(*zip(*axes, strict=True)), groups, weight, override)


def test_any_geometry():
    check(collect(convolutions(), 24), iree=False)


def test_any_geometry_on_iree():
    check(collect(convolutions(), 14), iree=True)
