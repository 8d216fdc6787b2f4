"""Number formats in NumPy: the numerical specification of everything else.

Every module in this folder is imported, and a format registers itself by being defined.
"""

from importlib import import_module
from pkgutil import iter_modules

import ml_dtypes  # noqa: F401 - makes `bfloat16` and others names that NumPy knows

from jq.formats.arrays import Array, ArrayOps
from jq.formats.base import Encoding, Format, Parts, get_format
from jq.formats.numpy_ops import NUMPY, NumpyOps

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "NUMPY",
    "Array",
    "ArrayOps",
    "Encoding",
    "Format",
    "NumpyOps",
    "Parts",
    "get_format",
]
