"""Number formats in NumPy: the numerical specification of everything else.

Every module in this folder is imported, and a format registers itself by being defined."""

import ml_dtypes

from jq.base.registry import import_all
from jq.formats.arrays import NUMPY, Array, ArrayOps, NumpyOps
from jq.formats.base import Encoding, Format, Parts, get_format

import_all(__name__)
