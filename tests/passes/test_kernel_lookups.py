"""Tables that products have as their weight: lookups read what the product packed."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import jq
from jq.formats import NUMPY, Encoding, get_format
from jq.kernels import ISAS, Gemv
from jq.kernels.gemv.layout import PLANES
from jq.passes.kernels.stored._lookups import Columns, readable
from tests.support.drawn import random_example
from tests.support.programs import Case, build, evaluated

ROWS, WIDTH = 333, 512
TOKENS = np.array([0, ROWS - 1, 64, ROWS + 5, -2 * ROWS], np.int32)  # the last two are clamped
BLOCKS = {
    "activations.granularity": "per-block",
    "activations.block_size": 32,
    "activations.scheme": "symmetric",
    "storage.inline_limit": 0,
}


def drawn(bits: int, kind: str, minimum: bool, **rest: Any) -> Gemv:
    outer = {"i8": 2}.get(kind, 0)
    low = minimum and bits < 8 and kind not in ("column", "f32")
    return Gemv(bits=bits, scale=kind, outer=outer, minimum=low, m=1, block=32, **rest)


KERNELS = st.builds(
    drawn,
    bits=st.sampled_from(sorted(PLANES)),
    kind=st.sampled_from(["f16", "f32", "i8", "column"]),
    minimum=st.booleans(),
    isa=st.sampled_from(sorted(ISAS)),
    k=st.integers(1, 300),
    n=st.integers(1, 700),
)


@random_example(st.lists(KERNELS, min_size=20, max_size=20))
def test_columns_are_those_that_were_packed(kernels, seed):
    """Layouts of all instruction sets, also of columns that two workgroups have."""
    rng = np.random.default_rng(seed)
    cases, wanted = [], []
    for kernel in kernels:
        assert readable(kernel)
        low = 0 if kernel.minimum else -(1 << kernel.bits - 1)
        codes = rng.integers(low, low + (1 << kernel.bits), (kernel.k, kernel.n)).astype(np.int8)
        chosen = rng.integers(0, kernel.n, 5).astype(np.int32)
        chosen[0] = kernel.n - 1
        if kernel.scale == "column":
            scale, levels = rng.uniform(-1, 1, kernel.n).astype(np.float32), []
            numbers = codes * scale
        else:
            levels = [level(rng, kernel) for _ in range(1 + kernel.minimum)]
            each = [np.repeat(by_block(v, kernel), 32, 0)[: kernel.k] for v in levels]
            scale, numbers = np.zeros(kernel.n, np.float32), codes * each[0]
            numbers = numbers + each[1] if kernel.minimum else numbers
        wanted.append(numbers.T[chosen])
        arrays = [chosen, kernel.pack(codes, *levels), kernel.pad_columns(scale)]
        cases.append(Case(lambda ops, n, w, s, k=kernel: Columns(k, w, n).values(s), arrays))
    program = build(*cases)
    results = evaluated(program, *[array for case in cases for array in case.args])
    for want, got in zip(wanted, results, strict=True):
        np.testing.assert_array_equal(got, want)


def level(rng: np.random.Generator, kernel: Gemv) -> Any:
    """Numbers by block and column as `pack` takes them."""
    shape = kernel.blocks, kernel.n
    if not kernel.outer:
        return rng.uniform(-1, 1, shape).astype(
            {"f16": np.float16, "f32": np.float32}[kernel.scale]
        )
    factors = rng.uniform(-1, 1, (-(-kernel.blocks // kernel.outer), kernel.n)).astype(np.float16)
    return rng.integers(-128, 128, shape).astype(np.int8), factors


def by_block(values: Any, kernel: Gemv) -> np.ndarray:
    if not kernel.outer:
        return values.astype(np.float32)
    integers, factors = values
    wide = np.repeat(factors.astype(np.float32), kernel.outer, 0)[: kernel.blocks]
    return integers.astype(np.float32) * wide


@pytest.mark.parametrize("name", ["q8_0", "q4_k", "q6_k", "int8"])
def test_a_tied_table_is_stored_once(name):
    """Lookups have the bits that the format decodes, for numbers that a gather clamps as well."""
    rng = np.random.default_rng(1)
    sizes = np.exp(rng.standard_normal((ROWS, 1)))
    table = (rng.standard_normal((ROWS, WIDTH)) * sizes).astype(np.float32)

    def run(params: Any, tokens: Any) -> Any:
        x = params["table"].at[tokens].get(mode="clip")
        return x, jnp.tanh(x) @ params["table"].T

    model = jq.Model(run, {"table": table}, (TOKENS,))
    made = jq.compile(model, "int8-dynamic", settings={**BLOCKS, "weights.format": name})
    found, _ = made(TOKENS)
    fmt = get_format(name)
    enc = Encoding(name, table.shape, (1, fmt.block or 0))
    decoded = np.asarray(fmt.decode(NUMPY, fmt.encode(table, enc), enc))
    np.testing.assert_array_equal(found, decoded[TOKENS.clip(0, ROWS - 1)])
    stored = sum(a.nbytes for a in made.parameters.values())
    # Columns are padded to whole workgroups; stored twice, it is 2.
    assert stored < 1.5 * sum(a.nbytes for a in fmt.encode(table, enc).values())
    audit = made.audit()
    assert audit.verified, audit.warnings
