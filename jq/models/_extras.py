"""Libraries that only the built-in models need, imported when a model asks for them."""

import importlib
from typing import Any

from jq.base.errors import UserError


def need(module: str, extra: str = "examples") -> Any:
    """The imported `module`, or a `UserError` that names the extra it comes with."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"this model needs the Python package {(error.name or module).partition('.')[0]}",
            hint=f'pip install "jaxq[{extra}]"',
        ) from error
