"""No kernel reads or writes out of bounds: its tensors lie beside pages that may not be touched."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from jq.kernels import Attention, Gemm, Kernel, Normalize, QuantizeRows, RowQuantization, Sequences
from tests.kernels.strategies import HERE, gemms, sizes
from tests.kernels.test_convolution import convolutions, depthwises, long_convolutions
from tests.kernels.test_gemv import kernels as gemvs
from tests.kernels.test_integer_attention import kernels as integer_attentions
from tests.kernels.test_pair_convolution import pair_convolutions
from tests.kernels.test_pair_gemm import ISAS as PAIRS
from tests.kernels.test_pair_gemm import pair_gemms
from tests.kernels.test_sequences import kernels as of_sequences
from tests.kernels.test_sequences import ragged
from tests.support.drawn import random_example

ROOT = Path(__file__).parent.parent.parent


def guarded(kernels: Sequence[Kernel], broken: int | None = None) -> subprocess.CompletedProcess:
    arguments = [] if broken is None else [str(broken)]
    return subprocess.run(
        [sys.executable, "-m", "tests.kernels.guard", *arguments],
        input=json.dumps([k.to_json() for k in kernels]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )


schemes = st.sampled_from([RowQuantization(s) for s in ("static", "symmetric", "asymmetric")])
isas = st.sampled_from(HERE)


def attentions() -> st.SearchStrategy[Attention]:
    def build(isa: str, rows: int, keys: int, dim: int, mask: str) -> Attention:
        return Attention(
            isa=isa,
            batch=1,
            queries=rows,
            keys=keys,
            heads=2,
            kv_heads=1,
            dim=dim,
            widths=(2 * dim, dim, dim),
            starts=(0, 0, 0),
            scale=0.1,
            mask=mask,
        )

    masks = st.sampled_from(["none", "keys", "full"])
    return st.builds(build, isas, sizes, sizes, st.integers(1, 70), masks)


def drawn() -> st.SearchStrategy[Kernel]:
    """Any kernel of an odd shape."""
    return st.one_of(
        gemms(),
        *pair_gemms(),
        *([pair_convolutions()] if PAIRS else []),
        gemvs,
        convolutions(),
        depthwises(),
        integer_attentions(),
        integer_attentions().map(lambda k: replace(k, sequences=Sequences(k.queries))),
        of_sequences().map(lambda k: ragged(k[0], Sequences(k[1], k[2]))),
        attentions(),
        st.builds(QuantizeRows, isa=isas, m=sizes, k=sizes, scheme=schemes),
        st.builds(Normalize, isa=isas, m=sizes, k=sizes, scheme=schemes),
    )


@random_example(st.lists(drawn(), min_size=12, max_size=12))
def test_nothing_outside_is_touched(kernels: list[Kernel], seed: int) -> None:
    nothing_outside_is_touched(kernels)


def test_nothing_outside_is_touched_by_long_convolutions() -> None:
    nothing_outside_is_touched(long_convolutions())


def nothing_outside_is_touched(kernels: Sequence[Kernel]) -> None:
    done = guarded(kernels)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-300:]
    lines = done.stdout.splitlines()
    assert len(lines) == len(kernels)
    assert all(line.endswith(" touched 0") for line in lines), done.stdout


@pytest.mark.parametrize("tensor", [0, 3])
def test_the_guard_sees_what_is_touched(tensor: int) -> None:
    """An operand or the result that ends in the page that may not be touched ends the process."""
    kernel = Gemm(isa=HERE[0], m=5, k=64, n=48)
    assert guarded([kernel], tensor).returncode == -signal.SIGSEGV
