"""dot_general on codes in every arrangement of its dimensions, against NumPy's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ir.ops.collect import collect
from tests.ir.ops.integers import Case, check

FORMATS = ("int8", "int4", "int16")
SCHEMES = ("symmetric", "asymmetric")


def dot_case(
    lhs: str, rhs: str, sizes: dict[str, int], weight: int | None, **override: Any
) -> Case:
    """A product in einsum's letters: shared ones are batch (capital) or contracted (small)."""
    batch = [a for a in lhs if a.isupper()]
    contracted = [a for a in lhs if a in rhs and a.islower()]
    free = [a for a in lhs if a not in rhs], [a for a in rhs if a not in lhs]
    out = [*batch, *free[0], *free[1]]
    numbers = f"contracting_dims = {_at(lhs, contracted)} x {_at(rhs, contracted)}"
    if batch:
        numbers = f"batching_dims = {_at(lhs, batch)} x {_at(rhs, batch)}, {numbers}"
    shapes = tuple(tuple(sizes[a] for a in axes) for axes in (lhs, rhs, out))
    spec = f"{lhs},{rhs}->{''.join(out)}"

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.einsum(spec, a, b)

    def scales(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        first = [
            tuple(slice(0, 1) if x in contracted else slice(None) for x in s) for s in (lhs, rhs)
        ]
        return np.einsum(spec, a[first[0]], b[first[1]])

    pairs = tuple((lhs.index(a), rhs.index(a)) for a in contracted)
    op = f"stablehlo.dot_general LHS, RHS, {numbers} {{ATTRS}}"
    return Case(op, shapes, weight, override, reference, scales, pairs)


def _at(axes: str, letters: list[str]) -> str:
    return f"[{', '.join(str(axes.index(a)) for a in letters)}]"


@st.composite
def dots(draw: st.DrawFn) -> Case:
    batch, contracted = "BC"[: draw(st.integers(0, 2))], "kl"[: draw(st.integers(1, 2))]
    free = "mn"[: draw(st.integers(0, 2))], "pq"[: draw(st.integers(0, 2))]
    lhs, rhs = ("".join(draw(st.permutations(batch + contracted + f))) for f in free)
    sizes = {a: draw(st.integers(1, 5)) for a in batch + free[0] + free[1]}
    sizes |= {a: draw(st.sampled_from([1, 3, 8, 12])) for a in contracted}
    weight = draw(st.sampled_from([0, 1, 1, None]))
    override = {
        "weights.format": draw(st.sampled_from(FORMATS)),
        "weights.scheme": draw(st.sampled_from(SCHEMES)),
        "weights.granularity": draw(st.sampled_from(["per-tensor", "per-channel", "per-block"])),
        "weights.block_size": 4,
        "activations.format": draw(st.sampled_from(["int8", "int8", "int16"])),
        "activations.mode": draw(st.sampled_from(["static", "dynamic"])),
        "activations.scheme": draw(st.sampled_from(SCHEMES)),
        "activations.granularity": draw(st.sampled_from(["per-tensor", "per-token"])),
    }
    last = max((lhs, rhs)[weight or 0].index(a) for a in contracted)
    along = (lhs, rhs)[weight or 0][last]
    if override["weights.granularity"] == "per-block" and sizes[along] not in (1, 8, 12):
        sizes[along] = 8  # blocks of 4 must divide the axis
    return dot_case(lhs, rhs, sizes, weight, **override)


def test_any_arrangement():
    check(collect(dots(), 28), iree=False)


def test_any_arrangement_on_iree():
    check(collect(dots(), 14), iree=True)


class OfEqualWeights(Case):
    def data(self, index: int) -> list[np.ndarray]:
        x, w = super().data(index)
        return [x, np.full_like(w, 2)]


def test_a_weight_of_equal_elements():
    """A zero point is corrected by sums of the weight, which IREE gets wrong by itself."""
    sizes = {"m": 1, "k": 3, "p": 2, "n": 1}
    override = {
        "weights.granularity": "per-tensor",
        "activations.format": "int16",
        "activations.mode": "static",
        "activations.scheme": "asymmetric",
        "activations.granularity": "per-tensor",
    }
    case = dot_case("mk", "pkn", sizes, 1, **override)
    check([OfEqualWeights(**vars(case))], iree=True)
