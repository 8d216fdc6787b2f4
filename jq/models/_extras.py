"""Libraries of extras, imported when something asks for them."""

import importlib
from typing import Any

from jq.base.errors import UserError


def need(module: str, extra: str = "examples") -> Any:
    """The imported `module`, or a `UserError` that names the extra it comes with."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"this needs the Python package {(error.name or module).partition('.')[0]}",
            hint=f'pip install "jaxq[{extra}]"',
        ) from error
