"""Cuts of stored tensors: cutting or joining the parts cuts or joins the tensor."""

from collections.abc import Sequence
from dataclasses import replace

from jq.formats.base import Encoding, get_format

Axes = dict[str, int | None]  # by part; None where its shape has nothing to do with the axis


def cut_axes(enc: Encoding, axis: int, at: int) -> Axes | None:
    """The axis of each part that is cut where the tensor is cut along `axis` in front of `at`.

    None unless a block, and a byte of packed codes, ends there in every part.
    """
    # Of such pieces their parts must be as many times; more than codes that fill bytes together.
    many = 24 * max(enc.block[axis], 1)
    one, all_ = (_shapes(enc, axis, n) for n in (at, at * many))
    axes: Axes = {}
    for name, shape in one.items():
        grown = [a for a, n in enumerate(shape) if all_[name][a] != n]
        axes[name] = grown[0] if grown else None
        if any(all_[name][a] != many * shape[a] for a in grown):
            return None
    return axes


def cut_range(
    enc: Encoding, axis: int, low: int, high: int
) -> dict[str, tuple[int, int, int]] | None:
    """Axis, start and end in each part of the indices from `low` to `high` along `axis`.

    Parts that stay whole are left out. None where a part cannot be cut there.
    """
    ends = [n for n in (low, high) if 0 < n < enc.shape[axis]] or [enc.shape[axis]]
    found = [cut_axes(enc, axis, n) for n in ends]
    if any(axes is None for axes in found):
        return None
    first, last = (_shapes(enc, axis, n) for n in (low, high))
    axes = {name: a for name, a in (found[0] or {}).items() if a is not None}
    return {name: (a, first[name][a] if low else 0, last[name][a]) for name, a in axes.items()}


def joined(encodings: Sequence[Encoding], axis: int) -> tuple[Encoding, dict[str, int]] | None:
    """The encoding of tensors one after the other along `axis`, and the axis of each part.

    None where they are stored in different ways, share a scale along that axis, or where the end
    of one is not the end of a block.
    """
    first, *others = encodings
    ends = [cut_axes(enc, axis, enc.shape[axis]) for enc in encodings[:-1]]
    size = sum(enc.shape[axis] for enc in encodings)
    shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    alike = all(replace(enc, shape=shape) == replace(first, shape=shape) for enc in others)
    if not alike or not ends or any(axes is None for axes in ends):
        return None
    axes = {name: a for name, a in (ends[0] or {}).items() if a is not None}
    return (replace(first, shape=shape), axes) if len(axes) == len(ends[0] or {}) else None


def _shapes(enc: Encoding, axis: int, size: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the parts of a tensor of this size along `axis`."""
    sized = replace(enc, shape=(*enc.shape[:axis], size, *enc.shape[axis + 1 :]))
    return {name: shape for name, (shape, _) in get_format(enc.format).storage(sized).items()}
