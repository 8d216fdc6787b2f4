"""Images of text for the models of rapidocr, drawn with fonts that Matplotlib brings.

Three channels, values x / 127.5 - 1, [1, 3, height, width]: what rapidocr gives its models.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FONTS = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf", "DejaVuSans-Bold.ttf")
# Written here and not read from a document: another text would be other images, and other errors.
TEXT = (
    "the of and to in is it for on as with that be this by from are or an at not each one "
    "which when model weights values integer float program kernel memory processor "
    "calibration sample range scale error output input layer product convolution attention "
    "channel tensor matrix file folder command Python NumPy compiler runtime target pipeline "
    "(int8) (int4), float32; accuracy: latency, result. measured quantized compiled stored "
    "written read 12 345 6.78 90% 2,048 x=1 a[0] --help -o FILE.npz before after between "
    "without under several every other small large fast slow exact equal first"
)
WORDS = TEXT.split()


@cache
def _font(name: str, size: int) -> Any:
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts/ttf", name)), size)


def line(rng: np.random.Generator, size: tuple[int, int]) -> tuple[np.ndarray, int]:
    """One line that fills the height; the rest of the width is 0."""
    return _normal(_line(rng, size), rng), 0


def turned_line(rng: np.random.Generator, size: tuple[int, int]) -> tuple[np.ndarray, int]:
    """A line, and whether it is upside down."""
    turned = int(rng.integers(2))
    image = _line(rng, size)
    return _normal(image[::-1, ::-1] if turned else image, rng), turned


def page(rng: np.random.Generator, size: tuple[int, int]) -> tuple[np.ndarray, int]:
    """Some lines of several sizes, one below the other."""
    image = np.full(size, rng.uniform(190, 255), np.float32)
    top = int(rng.integers(4, 30))
    while top < size[0] - 40:
        height = int(rng.integers(14, 36))
        left = int(rng.integers(0, size[1] // 3))
        drawn = _line(rng, (height, size[1] - left))
        image[top : top + height, left:] = drawn
        top += height + int(rng.integers(2, 30))
    return _normal(image, rng), 0


def _line(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    from PIL import Image, ImageDraw

    height, width = size
    paper, ink = rng.uniform(190, 255), rng.uniform(0, 90)
    font = _font(FONTS[rng.integers(len(FONTS))], int(height * rng.uniform(0.55, 0.75)))
    image = Image.new("L", (width, height), int(paper))
    text = " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=6))
    ImageDraw.Draw(image).text((int(rng.integers(2, 8)), height // 10), text, int(ink), font=font)
    return np.asarray(image, np.float32)


def _normal(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noisy = np.clip(image + rng.normal(0, 4, image.shape), 0, 255)
    tints = noisy * rng.uniform(0.9, 1, (3, 1, 1))
    return (tints / 127.5 - 1).astype(np.float32)[None]
