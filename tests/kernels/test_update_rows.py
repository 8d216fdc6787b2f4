"""Rows of a cache that are written in their place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Kernel, UpdateRows
from jq.kernels.rowwise.update_rows import ELEMENTS
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE
from tests.support.drawn import random_example


@st.composite
def kernels(draw: st.DrawFn) -> UpdateRows:
    count = draw(st.sampled_from([1, 1, 2, 5, 40]))
    return UpdateRows(
        isa=draw(st.sampled_from(HERE)),
        batch=draw(st.integers(1, 3)),
        rows=count + draw(st.integers(0, 9)),
        count=count,
        width=draw(st.integers(1, 200) | st.just(1024)),
        element=draw(st.sampled_from(["f32", "f16", "i8", "i16", "i32"])),
    )


@random_example(st.lists(kernels(), min_size=6, max_size=6))
def test_every_shape(drawn: list[UpdateRows], seed: int) -> None:
    runner, rng = Runner(drawn), np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        cache, new = (rng.integers(-99, 99, t.shape).astype(t.dtype) for t in kernel.operands[:2])
        most = kernel.rows - kernel.count
        for given, first in ((0, 0), (most, most), (most + 7, most), (rng.integers(most + 1),) * 2):
            (found,) = runner.run(i, cache.copy(), new, np.array([given], np.int32))
            expected = cache.copy()
            expected[:, first : first + kernel.count] = new
            np.testing.assert_array_equal(found, expected, err_msg=kernel.to_json(), strict=True)


def test_its_description_survives() -> None:
    kernel = UpdateRows(isa=HERE[-1], batch=2, rows=9, count=3, width=8, element="bf16")
    assert Kernel.from_json(kernel.to_json()) == kernel


@pytest.mark.parametrize(
    ("other", "reason"), [({"count": 10}, "no rows"), ({"element": "f64"}, "no rows of f64")]
)
def test_rows_that_it_does_not_take(other: dict[str, object], reason: str) -> None:
    given: dict[str, object] = {"batch": 1, "rows": 9, "count": 3, "width": 8, "element": "f32"}
    assert "f64" not in ELEMENTS
    with pytest.raises(InternalError, match=reason):
        UpdateRows(isa="portable", **(given | other))  # type: ignore[arg-type]
