"""Encodings that every format is tried with."""

from __future__ import annotations

import numpy as np

from jq.formats import Encoding, Format, get_format
from jq.formats.affine import Affine
from jq.formats.scaled import Scaled

NAMES = [name for name, f in sorted(Format.registry.items()) if isinstance(f, (Affine, Scaled))]
AFFINE = [name for name in NAMES if isinstance(get_format(name), Affine)]
SHAPES = ((1, 1), (64, 33), (7, 257), (3, 70, 9))


def encodings(name: str) -> list[Encoding]:
    """One for each odd shape, of varied granularity, scheme and scale type."""
    schemes = ("symmetric", "asymmetric") if name in AFFINE else ("symmetric",)
    return [
        Encoding(name, shape, block, schemes[i % len(schemes)], scale_type)
        for i, shape in enumerate(SHAPES)
        for block, scale_type in [_block(name, shape, i)]
    ]


def _block(name: str, shape: tuple[int, ...], i: int) -> tuple[tuple[int, ...], str]:
    tied = get_format(name).default_block(shape, -1 - i % 2)
    if tied is not None:
        return tied, "float32"
    lead = (1,) * (len(shape) - 2)
    return (
        ((0,) * len(shape), "float32"),
        ((*lead, 0, 1), "float32"),
        ((*lead, 1, 32), "bfloat16"),
        ((*lead, 32, 1), "float16"),
    )[i]


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Normal values of varied size, with some zeros and a zero block."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape[-1])
    x[rng.random(shape) < 0.05] = 0
    x[..., : shape[-1] // 5] *= rng.random() > 0.5
    return x.astype(np.float32)
