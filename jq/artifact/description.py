"""Describes a build: the manifest of an artifact before its files are written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jq.artifact.keys import version_of
from jq.artifact.manifest import SEVERAL_SIZES, TOOL, Manifest, StoredSize, StoredTensor, Tensor
from jq.base.tree import structure_of
from jq.ir import Program
from jq.target.target import Target

_PACKAGES = ("iree-base-compiler", "jax", "jaxlib", "numpy", "ml-dtypes")


def describe_build(*, program: Program, source: Program, target: Target, **told: Any) -> Manifest:
    """The manifest of `program` (the `target` level) that was made from `source` (`float`); `told`
    are more of its fields."""
    weights = float_weights(source)
    size = sum(math.prod(w.shape) * np.dtype(w.dtype).itemsize for w in weights.values())
    return Manifest(
        tool_version=version_of(TOOL, "unknown"),
        versions={name: version_of(name, "unknown") for name in _PACKAGES},
        target=target.name,
        driver=target.driver,
        flags=target.flags,
        inputs=_tensors(program.inputs),
        outputs=_tensors(program.outputs),
        in_structure=dict(structure_of(program.in_tree, len(program.inputs))),
        out_structure=dict(structure_of(program.out_tree, len(program.outputs))),
        weights=weights,
        encodings=program.encodings,
        float_parameter_bytes=size,
        **told,
    )


def with_sizes(
    manifest: Manifest, programs: Sequence[tuple[Mapping[str, int], Program]]
) -> Manifest:
    """The manifest of an artifact of several sizes: dimensions of each, and its program."""
    sizes = tuple(
        StoredSize(
            dimensions=dict(dimensions),
            inputs=_tensors(program.inputs),
            outputs=_tensors(program.outputs),
        )
        for dimensions, program in programs
    )
    return manifest.model_copy(update={"sizes": sizes, "schema_version": SEVERAL_SIZES})


def float_weights(source: Program) -> dict[str, StoredTensor]:
    """The weights of the float model. One that came quantized counts as what it stands for."""
    weights = {
        name: StoredTensor(shape=array.shape, dtype=array.dtype.name)
        for name, array in source.weights.items()
    }
    for name, enc in source.encodings.items():
        for part in enc["parts"]:
            weights.pop(f"{name}:{part}", None)
        weights[name] = StoredTensor(shape=tuple(enc["shape"]), dtype=enc["float_dtype"])
    return weights


def _tensors(specs: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=s.name, shape=s.shape, dtype=s.dtype) for s in specs)
