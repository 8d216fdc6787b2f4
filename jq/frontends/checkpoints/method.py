"""Methods of quantizing checkpoints: the tensors that a product has, and what they stand for.

A module such as `model.layers.0.mlp.up_proj` has several tensors, named after a dot (`qweight`,
`scales`, ...). A method reads them as one stored weight [out, in]."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.errors import UserError, check_known
from jq.formats import Encoding, Leaf, Parts, QuantizedTensor

# Kinds of tensors by NumPy's kinds of types (floats of ml_dtypes are V) and bytes, 0 for any:
# words, bytes, signed bytes, whole numbers, floats, and floats that have to be finite.
_KINDS = {"word": ("iu", 4), "byte": ("u", 1), "signed": ("i", 1), "whole": ("iu", 0)}
_KINDS |= {"float": ("fV", 0), "scale": ("fV", 0)}


@dataclass(frozen=True)
class Layer:
    """One product's tensors, by the part of their name that comes after the module's."""

    name: str  # of the module
    tensors: Parts
    config: Mapping[str, Any]  # the checkpoint's `quantization_config`
    where: str  # the file, for messages

    def get(self, name: str, wanted: str, **sizes: int) -> np.ndarray:
        """A tensor, not empty, of a kind and with axes that have names: `"word out groups"`. Those
        in `sizes` have such a size."""
        kind, *axes = wanted.split()
        array, (types, bytes_) = self.tensors.get(name), _KINDS[kind]
        if array is None:
            raise self.wrong(f"there is no {name}")
        known_type = array.dtype.kind in types and bytes_ in (0, array.dtype.itemsize)
        if not known_type or array.ndim != len(axes) or not array.size:
            raise self.wrong(f"{name} is {array.dtype.name}{list(array.shape)}, not {wanted}")
        needed = [sizes.get(axis, n) for axis, n in zip(axes, array.shape, strict=True)]
        if list(array.shape) != needed:
            raise self.wrong(f"{name} has shape {list(array.shape)}, {needed} belongs there")
        return self.finite(name, array) if kind == "scale" else array

    def all(self, **wanted: str) -> tuple[list[np.ndarray], dict[str, int]]:
        """Several tensors, and the sizes of their axes: those of one name are equal."""
        found, sizes = list[np.ndarray](), dict[str, int]()
        for name, kind in wanted.items():
            found.append(self.get(name, kind, **sizes))
            sizes |= zip(kind.split()[1:], found[-1].shape, strict=True)
        return found, sizes

    def finite(self, name: str, scale: np.ndarray) -> np.ndarray:
        if scale.dtype.kind not in "fV":
            raise self.wrong(f"{name} is {scale.dtype.name}")
        with np.errstate(over="ignore"):
            single = scale.astype(np.float32)
        if not np.isfinite(single).all():
            raise self.wrong(f"{name} holds NaN or infinity")
        return scale

    def wrong(self, reason: str) -> UserError:
        return UserError(
            f"the quantized weight of {self.name} cannot be read: {reason}", location=self.where
        )

    def stored(self, encoding: Encoding, make: Callable[[], Parts]) -> QuantizedTensor:
        return QuantizedTensor.made(encoding, make, f"{self.name}.weight")


@dataclass(frozen=True)
class Method:
    """Attributes:
    read: the module's weight as `weight`, and `order` where its columns stand in another one."""

    marks: frozenset[str]  # tensors that only a quantized module has
    parts: frozenset[str]  # all tensors that belong to such a module, but for its bias
    read: Callable[[Layer], Mapping[str, Leaf]]
    joint: str = "."  # what stands between a module's name and a part's


# Methods whose files are another's, by `quant_method` and `packing_format`.
SAME = {
    ("auto-round", "auto_round:auto_gptq"): "gptq",
    ("auto-round", "auto_round:auto_awq"): "awq",
}
METHODS: dict[str, Method] = {}  # by `quant_method` of the config


def method(name: str, marks: str, others: str, joint: str = ".") -> Callable[[Any], Any]:
    """Registers a function that reads the modules of a method; names are parted by spaces."""

    def register(read: Callable[[Layer], Mapping[str, Leaf]]) -> Any:
        own = frozenset(marks.split())
        METHODS[name] = Method(own, own | frozenset(others.split()), read, joint)
        return read

    return register


def unpacked_tensors(config: Mapping[str, Any], tensors: Parts, where: str) -> dict[str, Leaf]:
    """The tensors of a checkpoint, those of each quantized module replaced by its weight;
    `UserError` where the method, or how it stored a weight, is not known."""
    name = str(config.get("quant_method"))
    name = SAME.get((name, str(config.get("packing_format"))), name)
    found = METHODS[check_known("method of quantizing", name, sorted(METHODS), location=where)]
    plain: dict[str, Leaf] = {}
    modules: dict[str, dict[str, np.ndarray]] = {}
    for tensor, array in tensors.items():
        # The longest: `weight.absmax` begins with the name of another part.
        ends = [part for part in found.parts if tensor.endswith(found.joint + part)]
        if not ends:
            plain[tensor] = array
            continue
        part = max(ends, key=len)
        modules.setdefault(tensor.removesuffix(found.joint + part), {})[part] = array
    for module, own in modules.items():
        if found.marks & own.keys():
            made = found.read(Layer(module, own, config, where))
            plain |= {f"{module}.{part}".removesuffix("."): leaf for part, leaf in made.items()}
        else:
            plain |= {module + found.joint + part: array for part, array in own.items()}
    return plain
