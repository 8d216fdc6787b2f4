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


def words(rng: np.random.Generator, size: tuple[int, int]) -> tuple[list[np.ndarray], str]:
    """A line of two or three words that are all on it, and its text."""
    text = " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=int(rng.integers(2, 4))))
    image = _line(rng, size, text)
    return [_normal(image, rng)], text


def marked_page(rng: np.random.Generator, size: tuple[int, int]) -> tuple[list[np.ndarray], Any]:
    """Lines far from each other, and bool[height, width] of the middle of each."""
    image, mask = np.full(size, rng.uniform(190, 255), np.float32), np.zeros(size, bool)
    top = int(rng.integers(8, 40))
    while top < size[0] - 48:
        height, text = int(rng.integers(20, 36)), WORDS[rng.integers(len(WORDS))]
        left = int(rng.integers(8, size[1] // 2))
        drawn = _line(rng, (height, size[1] - left), text)
        image[top : top + height, left:] = drawn
        inked = np.flatnonzero((drawn < drawn.max() - 30).any(0))
        mask[top + height // 4 : top + 3 * height // 4, left + inked[0] : left + inked[-1]] = True
        top += height + int(rng.integers(12, 40))
    return [_normal(image, rng)], mask


def digits(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Five digits on 155 x 50 pixels, [1, 50, 155, 3] of 0 to 1, and which they are."""
    from PIL import Image, ImageDraw

    image, found = Image.new("RGB", (155, 50), (255, 255, 255)), rng.integers(0, 10, 5)
    draw = ImageDraw.Draw(image)
    for i, digit in enumerate(found):
        font = _font(FONTS[rng.integers(len(FONTS))], int(rng.integers(26, 34)))
        ink = tuple(int(c) for c in rng.integers(0, 120, 3))
        at = 10 + 28 * i + int(rng.integers(-3, 4)), int(rng.integers(4, 12))
        draw.text(at, str(digit), ink, font=font)
    noisy = np.asarray(image, np.float32) / 255 + rng.normal(0, 0.02, (50, 155, 3))
    return [np.clip(noisy, 0, 1).astype(np.float32)[None]], found


def photographs() -> list[np.ndarray]:
    """Two photographs that scikit-learn brings, u8[height, width, 3]."""
    from sklearn.datasets import load_sample_images

    return list(load_sample_images().images)


def crops(photograph: np.ndarray, seed: int, count: int) -> list[tuple[np.ndarray]]:
    """Parts of a photograph, turned, lit and blurred anew, f32[1, 224, 224, 3] as a network of
    ImageNet takes them."""
    from PIL import Image, ImageFilter

    rng, whole = np.random.default_rng(seed), Image.fromarray(photograph)
    found = []
    for _ in range(count):
        size = int(rng.integers(120, 400))
        left, top = (int(rng.integers(0, n - size)) for n in whole.size)
        part = whole.crop((left, top, left + size, top + size)).rotate(float(rng.uniform(-15, 15)))
        part = part.resize((224, 224)).filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1.5))))
        x = np.asarray(part, np.float32) * rng.uniform(0.7, 1.2) / 255
        x = (np.clip(x, 0, 1) - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
        found.append((x.astype(np.float32)[None],))
    return found


def _line(rng: np.random.Generator, size: tuple[int, int], text: str = "") -> np.ndarray:
    """By default of as many drawn words as fit; a given text is as large as it may be."""
    from PIL import Image, ImageDraw

    height, width = size
    paper, ink = rng.uniform(190, 255), rng.uniform(0, 90)
    name, points = FONTS[rng.integers(len(FONTS))], int(height * rng.uniform(0.55, 0.75))
    image = Image.new("L", (width, height), int(paper))
    given, text = text, text or " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=6))
    while given and _font(name, points).getlength(text) > width - 10:
        points -= 1
    left = int(rng.integers(2, 8)) if not given else 3
    ImageDraw.Draw(image).text((left, height // 10), text, int(ink), font=_font(name, points))
    return np.asarray(image, np.float32)


def _normal(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noisy = np.clip(image + rng.normal(0, 4, image.shape), 0, 255)
    tints = noisy * rng.uniform(0.9, 1, (3, 1, 1))
    return (tints / 127.5 - 1).astype(np.float32)[None]
