"""Properties that every format promises, on arrays that nobody chose."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, get_format
from tests.formats.encodings import AFFINE, NAMES, encodings, values

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EVERY = pytest.mark.parametrize("name", NAMES)
FREE = [name for name in NAMES if get_format(name).default_block((2, 2), 0) is None]

shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=40)
numbers = st.one_of(
    st.floats(-1e4, 1e4, width=32),
    st.floats(-(2.0**-100), 2.0**-100, width=32),
    st.sampled_from([0.0, -0.0, 1e-45, 2.0**-127, 1.0, 0.5]),
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    return draw(hnp.arrays(np.float32, draw(shapes), elements=numbers, fill=st.just(0.0)))


@st.composite
def encoded(draw: st.DrawFn, name: str) -> tuple[np.ndarray, Encoding]:
    x = draw(arrays())
    axis = draw(st.integers(0, x.ndim - 1))
    block = get_format(name).default_block(x.shape, axis)
    if block is None:
        block = draw(st.tuples(*[st.sampled_from([0, 1, 3, 32, 100]) for _ in x.shape]))
    scheme = draw(st.sampled_from(["symmetric", "asymmetric"])) if name in AFFINE else "symmetric"
    return x, Encoding(name, x.shape, block, scheme)


def round_trip(x: np.ndarray, enc: Encoding) -> np.ndarray:
    fmt = get_format(enc.format)
    return np.asarray(fmt.decode(NUMPY, fmt.encode(x, enc), enc))


def repeat(grid: np.ndarray, enc: Encoding) -> np.ndarray:
    """A grid at the tensor's shape, by index."""
    index = [np.arange(n) // (b or n) for n, b in zip(enc.shape, enc.block, strict=True)]
    return grid[np.ix_(*index)]


@EVERY
@QUICK
@given(data=st.data())
def test_zero_is_exact_and_nothing_is_nan(name: str, data: st.DataObject) -> None:
    x, enc = data.draw(encoded(name))
    y = round_trip(x, enc)
    assert y.dtype == np.float32
    assert y.shape == x.shape
    assert np.isfinite(y).all()
    assert (y[x == 0] == 0).all()


@pytest.mark.parametrize("name", AFFINE)
@QUICK
@given(data=st.data())
def test_affine_error_is_half_a_step(name: str, data: st.DataObject) -> None:
    """Within the range; one more half where the zero point itself was rounded."""
    x, enc = data.draw(encoded(name))
    fmt = get_format(name)
    parts = fmt.encode(x, enc)
    step = repeat(parts["scale"], enc).astype(np.float64)
    y = np.asarray(fmt.decode(NUMPY, parts, enc)).astype(np.float64)
    halves = 0.5 if enc.scheme == "symmetric" else 1.0
    # Rounding of x / scale, of the scale itself over all codes, and of the product.
    slack = 4 * np.finfo(np.float32).eps * 2.0**fmt.bits
    assert (np.abs(x - y) <= step * (halves + slack)).all()


@EVERY
@QUICK
@given(data=st.data())
def test_what_was_decoded_encodes_to_itself(name: str, data: st.DataObject) -> None:
    """With the parameters that are kept: codes are those of the nearest number."""
    x, enc = data.draw(encoded(name))
    fmt = get_format(name)
    parts = fmt.encode(x, enc)
    y = np.asarray(fmt.decode(NUMPY, parts, enc))
    if name in AFFINE:
        zero = fmt.zero_point(NUMPY, parts, enc)
        again = fmt.quantize(y, parts["scale"], zero, enc)
        np.testing.assert_array_equal(again, fmt.codes(NUMPY, parts, enc))
    else:
        steps = y / repeat(np.asarray(fmt.scale(NUMPY, parts, enc)), enc)
        again = fmt.element.encode(steps, "even")
        np.testing.assert_array_equal(
            fmt.element.decode(NUMPY, again),
            fmt.element.decode(NUMPY, fmt.codes(NUMPY, parts, enc)),
        )


@EVERY
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(name: str, bad: float) -> None:
    enc = encodings(name)[1]
    x = values(enc.shape)
    x[5, 6] = bad
    with pytest.raises(FormatError, match="NaN or infinity"):
        get_format(name).encode(x, enc)


@EVERY
def test_wrong_shape_is_refused(name: str) -> None:
    enc = encodings(name)[1]
    with pytest.raises(FormatError, match="shape"):
        get_format(name).encode(values(enc.shape).T, enc)


@EVERY
def test_zero_tensor(name: str) -> None:
    for enc in encodings(name):
        assert not round_trip(np.zeros(enc.shape, np.float32), enc).any()


@EVERY
def test_a_slice_along_leading_axes_is_a_slice_of_the_parts(name: str) -> None:
    """A loop over stacked layers relies on it."""
    fmt = get_format(name)
    enc = encodings(name)[3]
    stacked = values(enc.shape)
    parts = fmt.encode(stacked, enc)
    one = enc.with_shape((1, *enc.shape[1:]), enc.block)
    whole = np.asarray(fmt.decode(NUMPY, parts, enc))
    for i in range(enc.shape[0]):
        layer = {k: v if v.shape[0] == 1 else v[i : i + 1] for k, v in parts.items()}
        np.testing.assert_array_equal(fmt.decode(NUMPY, layer, one), whole[i : i + 1])


@pytest.mark.parametrize("name", FREE)
def test_a_block_larger_than_its_axis_is_the_whole_axis(name: str) -> None:
    x = values((7, 5))
    large, whole = Encoding(name, (7, 5), (100, 1)), Encoding(name, (7, 5), (0, 1))
    np.testing.assert_array_equal(round_trip(x, large), round_trip(x, whole))


@EVERY
def test_padding_never_reaches_a_result(name: str) -> None:
    """A short last block is a block of its own."""
    fmt = get_format(name)
    size = (fmt.default_block((1,), 0) or (32,))[0]
    x = values((size + 3,))
    x[size:] = [8, 9, 10]  # asymmetric schemes take 0 in, but no padding would show up here
    enc = Encoding(name, x.shape, (size,))
    tail = Encoding(name, (3,), (size,))
    if name != "nvfp4":  # whose tensor scale is one for all blocks
        np.testing.assert_array_equal(round_trip(x, enc)[size:], round_trip(x[size:], tail))


@EVERY
def test_input_types(name: str) -> None:
    """float16 and float64 weights are quantized as the float32 numbers that they are."""
    enc = encodings(name)[1]
    x = values(enc.shape).astype(np.float16)
    want = round_trip(x.astype(np.float32), enc)
    for dtype in (np.float16, np.float64):
        np.testing.assert_array_equal(round_trip(x.astype(dtype), enc), want)


@EVERY
def test_layout_does_not_matter(name: str) -> None:
    """Fortran order and strides give the same parts."""
    fmt, enc = get_format(name), encodings(name)[1]
    x = values(enc.shape)
    want = fmt.encode(x, enc)
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(x), wide):
        for part, array in fmt.encode(other, enc).items():
            np.testing.assert_array_equal(array, want[part])


@EVERY
@pytest.mark.parametrize("shape", [(70, 1000), (3, 40, 1000), (1, 2, 33, 1111), (100_001,)])
def test_large_tensors_in_pieces(name: str, shape: tuple[int, ...]) -> None:
    """Cut into pieces that fit a cache, a tensor is what it is as a whole."""
    fmt, x = get_format(name), values(shape)
    for axis in range(len(shape)):
        own = fmt.default_block(shape, axis)
        block = own or tuple((1, 32, 0)[(axis + i) % 3] for i in range(len(shape)))
        enc = Encoding(name, shape, block, "asymmetric" if name in AFFINE else "symmetric")
        parts = fmt.encode(x, enc)
        whole = np.asarray(fmt.decode(NUMPY, parts, enc))
        np.testing.assert_array_equal(fmt.to_numpy(parts, enc), whole)
        step = repeat(np.asarray(fmt.scale(NUMPY, parts, enc)), enc)
        if name in AFFINE:  # a piece read with another's scale would be far off
            assert (np.abs(x - whole) <= 1.001 * step).all()


def test_bfloat16_is_a_name_that_numpy_knows() -> None:
    """In a process where nothing else has imported ml_dtypes."""
    code = (
        "import numpy as np; from jq.formats import Encoding, get_format;"
        "get_format('int8').encode(np.ones(4), Encoding('int8', (4,), (0,), scale_type='bfloat16'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
