"""Models in ONNX files: `load_onnx` makes a JAX function of the graph, node by node.

`import onnx` in here is the library. What an operator does is in `jq/frontends/onnx/operators`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jq.frontends.onnx.describe import describe_onnx
    from jq.frontends.onnx.load import describe_checked, load_checked, load_onnx

__all__ = ["describe_checked", "describe_onnx", "load_checked", "load_onnx"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jq.base.errors import UserError

    try:
        from jq.frontends.onnx import load
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "google"):
            raise
        what = "ONNX files need the onnx package"
        raise UserError(what, hint="pip install 'jaxq[examples]'") from error
    return getattr(load, name)
