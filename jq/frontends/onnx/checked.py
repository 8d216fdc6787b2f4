"""ONNX files from anybody: read in a process of their own first (`jq.base.guard`), the whole way to
a program. What crashes, never ends or fills the memory there is one error here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jq.base.guard.worker import WORKER
from jq.base.system.files import check_input
from jq.frontends.model import Model
from jq.frontends.onnx.describe import describe_onnx
from jq.frontends.onnx.given_inputs import Sizes
from jq.frontends.onnx.load import load_onnx
from jq.frontends.tracing.entry import trace


def load_checked(
    path: Path, sizes: Sizes | None = None, values: Mapping[str, Any] | None = None
) -> Model:
    """`load_onnx` of a file that was read, and traced, without harm."""
    _ask(try_load, path, sizes=dict(sizes or {}), values=dict(values or {}))
    return load_onnx(path, sizes, values)


def describe_checked(path: Path) -> dict[str, Any]:
    """`describe_onnx`, as the other process says."""
    found: dict[str, Any] = _ask(try_describe, path)
    return found


def _ask(function: Any, path: Path, **arguments: Any) -> Any:
    check_input(path)
    beside = (each.stat().st_size for each in path.parent.iterdir() if each.is_file())
    return WORKER.ask(
        f"{__name__}:{function.__name__}",
        b"",
        str(path),
        size=sum(beside),  # tensors may lie in any of them
        path=str(path.resolve()),
        **arguments,
    )


def try_load(_: bytes, path: str, sizes: dict[str, Any], values: dict[str, Any]) -> None:
    trace(load_onnx(path, sizes, values))


def try_describe(_: bytes, path: str) -> dict[str, Any]:
    return describe_onnx(path)
