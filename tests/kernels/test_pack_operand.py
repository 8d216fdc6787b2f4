"""What is packed at run time is what `Gemm.pack` makes of the same codes."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jq.kernels import Batch, Gemm, PackOperand
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE, codes, sizes


@st.composite
def kernels(draw: st.DrawFn) -> PackOperand:
    isa = draw(st.sampled_from(HERE))
    column_zero = draw(st.booleans())
    gemm = Gemm(
        isa=isa,
        m=draw(sizes),
        k=draw(sizes),
        n=draw(sizes),
        rows=draw(st.sampled_from([None, Batch(2), Batch(3)])),
        unsigned=draw(st.booleans()) and not column_zero,
        row_zero=draw(st.booleans()),
        column_zero=column_zero,
    )
    return PackOperand(
        isa=isa,
        gemm=gemm,
        transposed=draw(st.booleans()),
        zero_point=0 if gemm.row_zero else draw(st.sampled_from([0, 3, -128])),
        column_zero=draw(st.sampled_from([0, -5, 127])) if column_zero else 0,
    )


@given(st.lists(kernels(), min_size=8, max_size=8), st.integers(0, 2**32))
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_as_at_compile_time(drawn: list[PackOperand], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        gemm = kernel.gemm
        w = codes(rng, (*gemm.lead, gemm.k, gemm.n))
        zeros = np.full((*gemm.lead, gemm.n), kernel.column_zero, np.int32)
        want = gemm.pack(w, None, kernel.zero_point, zeros if gemm.column_zero else None)
        got = runner.run(i, w.swapaxes(-1, -2).copy() if kernel.transposed else w)
        for array, name in zip(got, ("weights", "init", "colsum"), strict=False):
            part = want[name]
            if name != "weights":  # columns past N reach no result
                array, part = array[..., : gemm.n], part[..., : gemm.n]
            np.testing.assert_array_equal(array, part, err_msg=f"{name} {kernel.to_json()}")
