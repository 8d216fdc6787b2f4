"""The ggml decodes as StableHLO: every compiler gives NumPy's bits, for every type."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import Encoding, Format, get_format
from jq.formats.ggml import GgmlFormat
from tests.support.programs import Case, check

TYPES = sorted(n for n, f in Format.registry.items() if isinstance(f, GgmlFormat))
# One row, an odd count of rows, a stack blocked on its middle axis; counted in blocks.
LAYOUTS = [((1, 1), 1), ((7, 2), 1), ((3, 2, 5), 1)]


def stored(name: str, counts: tuple[int, ...], axis: int) -> tuple[Encoding, np.ndarray]:
    """Random bytes: denormal, negative, infinite and NaN f16 scales are among them."""
    f = get_format(name)
    shape = tuple(n * f.block if i == axis else n for i, n in enumerate(counts))
    enc = Encoding(name, shape, f.default_block(shape, axis))
    rng = np.random.default_rng(len(counts))
    blocks = rng.integers(-128, 128, f.storage(enc)["blocks"][0], np.int8)
    if name == "ggml_mxfp4":
        # XLA CPU and IREE flush denormal float32, which its two smallest scales give.
        blocks[..., 0] = np.maximum(blocks[..., 0].view(np.uint8), 2).view(np.int8)
    return enc, blocks


def case(name: str, counts: tuple[int, ...], axis: int, *, constant: bool) -> Case:
    enc, blocks = stored(name, counts, axis)
    f = get_format(name)

    def definition(ops, raw):
        parts = {"blocks": raw}
        if constant:
            return f.decode(ops, parts, enc)
        integers = f.integer_parts(ops, parts, enc)
        return f.decode(ops, parts, enc), *(part for part in integers if part is not None)

    return Case(definition, [blocks], constant)


@pytest.mark.parametrize("runner", ["interpreter", "xla"])
def test_blocks_as_arguments(runner: str) -> None:
    check([case(n, *layout, constant=False) for n in TYPES for layout in LAYOUTS], runner)


def test_blocks_as_arguments_of_iree() -> None:
    """Each type in one layout, in turns: IREE compiles a case for a second."""
    turns = [(name, LAYOUTS[i % len(LAYOUTS)]) for i, name in enumerate(TYPES)]
    check([case(name, *layout, constant=False) for name, layout in turns], "iree")


@pytest.mark.parametrize(("runner", "types"), [("xla", TYPES), ("iree", TYPES[::3])])
def test_blocks_as_constants(runner: str, types: list[str]) -> None:
    """IREE compiles twice what it evaluates: each third type, since it has decoded all above."""
    check([case(n, *LAYOUTS[1], constant=True) for n in types], runner)
