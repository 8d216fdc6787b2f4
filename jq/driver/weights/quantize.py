"""`quantize_weights`: low-bit weights for a model or any StableHLO module, in one call."""

from pathlib import Path
from typing import Any

from jq.base.errors import FormatError, UserError
from jq.base.guard.worker import WORKER
from jq.base.system.files import read_input
from jq.driver.weights import module as modules
from jq.formats import Encoding, QuantizedTensor, get_format
from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.frontends.tracing.inputs import with_params
from jq.frontends.tracing.modules import parse_stablehlo
from jq.ir import bytecode_of, dtype_of, ir, parse_module
from jq.planning.operands import contractions, op_name


def quantize_weights(
    module_or_model: Any,
    dtype: Any = "int8",
    qscheme: str = "symmetric",
    granularity: str = "per-channel",
    block_size: int = 32,
    weight_num_threshold: int = 1024,
    scale_dtype: Any = None,
    in_place: bool = False,
) -> Any:
    """Weights of dot_general, convolution and gather in few bits; activations stay float.

    Args:
        module_or_model: a `jq.Model`; or a StableHLO module that anything may have written: an
            `ir.Module`, its text, or the path of a `.mlir` or `.mlirbc` file.
        dtype: int2, int4, int8, uint2, uint4, uint8, float8_e4m3fn, float8_e5m2 or
            float4_e2m1fn; a name or a NumPy dtype.
        qscheme: `symmetric` or `asymmetric` (integers alone).
        granularity: `per-tensor`, `per-channel`, or `per-block` along the contracted axis.
        block_size: values that share a scale in `per-block`.
        weight_num_threshold: weights with fewer elements stay as they are.
        scale_dtype: for float8 alone: None (the weight's own type) or float8_e8m0fnu (MXFP8).
        in_place: rewrite the given `ir.Module`.

    Returns:
        A model whose parameters are quantized tensors; or a module (the given one, `in_place`)
        whose constants are codes and scales, read by `jq.dequantize` composites and listed in
        its attribute `jq.encodings`. Either goes to `jq.compile(..., pipeline="float")`.

    Raises:
        UserError: an option, or a combination of options, that cannot be.

    Warns:
        SkippedWeight: for each op whose weight stays as it is, with the reason.

    Example:
        ```python
        small = jq.quantize_weights(model, "int4", "symmetric", "per-block", 8, 64)
        compiled = jq.compile(small, "float")
        ```"""
    options = modules.WeightOptions.of(
        dtype, qscheme, granularity, block_size, weight_num_threshold, scale_dtype
    )
    if isinstance(module_or_model, Model):
        if in_place:
            hint = "take the model that is returned"
            raise UserError("in_place=True is for modules: a jq.Model is frozen", hint=hint)
        return _quantize_model(module_or_model, options)
    if isinstance(module_or_model, ir.Module):
        return _quantize_given(module_or_model, options, in_place)
    if in_place:
        what = "in_place=True is for modules: there is none to change behind a text or a path"
        raise UserError(what, hint="take the module that is returned")
    module = _read(module_or_model)
    modules.quantize_module(module, options)
    return module


def _read(source: Any) -> ir.Module:
    """A module from text or from a file."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        WORKER.ask("jq.frontends.tracing.modules:try_module", source.encode(), "the module's text")
        return parse_module(source)
    if not isinstance(source, str | Path):
        hint = "give a jq.Model, an ir.Module, its text, or the path of a module"
        raise UserError(f"cannot quantize a {type(source).__name__}", hint=hint)
    path = Path(source)
    data = read_input(path)
    WORKER.ask("jq.frontends.tracing.modules:try_module", data, str(path))
    return parse_stablehlo(data, str(path))


def _quantize_given(module: ir.Module, options: modules.WeightOptions, in_place: bool) -> ir.Module:
    """Works on a copy in our context; the result is in the context of the given module."""
    copy = parse_module(bytecode_of(module))
    modules.quantize_module(copy, options)
    with module.context, ir.Location.unknown():
        result = ir.Module.parse(bytecode_of(copy))
        if not in_place:
            return result
        for op in list(module.body.operations):
            op.erase()
        for op in list(result.body.operations):
            module.body.append(op.operation.detach_from_parent())
        for attribute in result.operation.attributes.items():
            module.operation.attributes[attribute[0]] = attribute[1]
    return module


def _quantize_model(model: Model, options: modules.WeightOptions) -> Model:
    """Each weight in the first encoding that an op asks for."""
    program = trace(model)
    chosen: dict[str, Encoding] = {}
    for op, rule in contractions(program):
        try:
            uses = modules.weights_of(program, op, rule)
            chosen = {u.name: options.encoding(u, dtype_of(u.value)) for u in uses} | chosen
        except FormatError as reason:
            modules.skipped(op_name(op), rule.op, str(reason))
    params = {}
    for name, enc in chosen.items():
        weight = program.weights[name]
        parts = get_format(enc.format).encode(weight, enc)
        params[name] = QuantizedTensor(enc, parts, name, weight.dtype)
    return with_params(model, params)
