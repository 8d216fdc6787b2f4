"""Integers, scales and rounded numbers of blocks against `jq.formats`, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from jq.formats import Encoding, get_format
from jq.formats.arrays import NUMPY
from jq.formats.base import Format, unpacked
from jq.kernels import QuantizeBlocks
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE
from tests.kernels.test_quantize_rows import rows
from tests.support.drawn import random_example

FORMATS = [name for name, fmt in Format.registry.items() if fmt.block and fmt.at_run_time]
STRANGE = np.float32([np.nan, np.inf, -np.inf])
shapes = st.sampled_from([(1, 16), (3, 24), (5, 144), (2, 6, 32), (7, 3), (16, 160), (9, 70)])


@st.composite
def quantizers(draw: st.DrawFn) -> tuple[QuantizeBlocks, Encoding]:
    shape, fmt = draw(shapes), get_format(draw(st.sampled_from(FORMATS)))
    block = fmt.default_block(shape, -1)
    assert block is not None
    enc = unpacked(Encoding(fmt.name, shape, block))
    coded = fmt.integer_bits is not None and draw(st.booleans())
    kernel = QuantizeBlocks.of(draw(st.sampled_from(HERE)), enc, coded)
    assert kernel is not None
    return kernel, enc


@random_example(st.lists(quantizers(), min_size=10, max_size=10))
def test_every_format(drawn: list[tuple[QuantizeBlocks, Encoding]], seed: int) -> None:
    """Blocks of all magnitudes, some of which hold what is no number."""
    runner, rng = Runner([kernel for kernel, _ in drawn]), np.random.default_rng(seed)
    for i, (kernel, enc) in enumerate(drawn):
        fmt, x = get_format(enc.format), rows(rng, *_flat(enc.shape)).reshape(enc.shape)
        if not kernel.whole:
            x = np.where(rng.random(x.shape) < 0.01, rng.choice(STRANGE, x.shape), x)
        given = [x.reshape(kernel.m, kernel.k)]
        given += [np.abs(x).max().reshape(1)] * kernel.whole
        found = runner.run(i, *given)
        parts = fmt.quantize_dynamic(NUMPY, x, enc)
        if kernel.coded:
            integers = fmt.integers(NUMPY, parts, enc)
            assert integers is not None
            wanted = [integers.codes, integers.scale]
        else:
            wanted = [fmt.decode(NUMPY, parts, enc)]
        for value, array in zip(found, wanted, strict=True):
            pair = (_normal(v) for v in (value.reshape(array.shape), array))
            np.testing.assert_array_equal(*pair, kernel.to_json())


def _normal(x: np.ndarray) -> np.ndarray:
    """Without subnormal numbers, which IREE's runtime takes for 0."""
    return np.where(np.abs(x) < 2.0**-126, 0, x) if x.dtype == np.float32 else x


def _flat(shape: tuple[int, ...]) -> tuple[int, int]:
    return int(np.prod(shape[:-1])), shape[-1]


def test_affine_formats_have_none() -> None:
    """Their ranges have two ends, and the kernel finds one."""
    for name in ("int4", "int8", "int16"):
        enc = unpacked(Encoding(name, (3, 64), (1, 32), scheme="asymmetric"))
        assert QuantizeBlocks.of(HERE[0], enc, coded=False) is None
