"""The same bits whatever a vector holds: the programs of one artifact agree on every machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.kernels import Attention, Kernel, get_isa
from jq.kernels.machine import isa as machine
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE
from tests.kernels.test_row_count import (
    FAMILIES,
    TOKENS,
    Arrays,
    attention_operands,
    packed_operands,
    values,
)
from tests.support.drawn import random_example

WIDE = "sixteen_lanes"  # of AVX-512, on the vectors that this machine has


@pytest.fixture(scope="module", autouse=True)
def sixteen_lanes() -> Iterator[None]:
    plain = get_isa("portable")
    machine.ISAS[WIDE] = dataclasses.replace(plain, name=WIDE, lanes=16, rounds=True)
    yield
    del machine.ISAS[WIDE]


def operands(kernels: list[Kernel], seed: int) -> Iterator[Arrays]:
    """The same numbers for each, its weights packed as it reads them."""
    for kernel in kernels:
        rng = np.random.default_rng(seed)
        if isinstance(kernel, TOKENS):
            yield list(map(np.ascontiguousarray, attention_operands(rng, kernel)[0]))
            continue
        first = [values(np.random.default_rng([seed, i]), k) for i, k in enumerate(kernel.operands)]
        packed = packed_operands(rng, kernel, kernel)
        yield [packed[i][0] if i in packed else x for i, x in enumerate(first)]


def on(isa: str, kernel: Kernel) -> Kernel:
    """Attention in f32: only some instruction sets multiply bf16, each with sums of its own."""
    if isinstance(kernel, Attention):
        return dataclasses.replace(kernel, isa=isa, precision="f32")
    return dataclasses.replace(kernel, isa=isa)


@random_example(st.tuples(*(family() for family in FAMILIES)))
def test_equal_bits_at_every_number_of_lanes(pairs: tuple, seed: int) -> None:
    names = [WIDE, *(name for name in HERE if not get_isa(name).multiplies_bf16)]
    kernels = [on(name, whole) for whole, _ in pairs for name in names]
    runner = Runner(kernels)
    for first in range(0, len(kernels), len(names)):
        own = kernels[first : first + len(names)]
        results = [runner.run(first + i, *given) for i, given in enumerate(operands(own, seed))]
        for kernel, found in zip(own[1:], results[1:], strict=True):
            for x, y in zip(results[0], found, strict=True):
                np.testing.assert_array_equal(
                    x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"), err_msg=kernel.to_json()
                )
