"""Number formats in NumPy: the numerical specification of everything else.

Every module in this folder is imported, and a format registers itself by being defined."""

import ml_dtypes

from jq.base.registry import import_all
from jq.formats.affine import Affine, affine_format, is_affine
from jq.formats.arrays import NUMPY, Array, ArrayOps, NumpyOps
from jq.formats.base import Encoding, Format, Integers, get_format, unpacked
from jq.formats.tensor import Deferred, Leaf, Parts, QuantizedTensor, bytes_of

import_all(__name__)
