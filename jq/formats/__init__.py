"""Number formats in NumPy: the numerical specification of everything else.

Every module in this folder is imported, and a format registers itself by being defined.
"""

from importlib import import_module
from pkgutil import walk_packages

import ml_dtypes

from jq.formats.arrays import NUMPY, Array, ArrayOps, NumpyOps
from jq.formats.base import Encoding, Format, Parts, get_format

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
