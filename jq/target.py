"""A target: the compiler's flags, and what the device can do. `targets/<name>.toml`, or a path."""

from __future__ import annotations

import tomllib
from typing import Any

from jq.data import data_file
from jq.errors import UserError
from jq.settings import Granularity, Strict, validate


class Device(Strict):
    """What the device computes. Planning never emits what is not listed here.

    `products` are pairs of integer formats, activations first (`int8 x int8`); weight-only
    products (`float x int4`) need no entry when `float_products` is true.
    """

    products: tuple[str, ...] = ("int8 x int8",)
    float_products: bool = True
    weight_granularities: tuple[Granularity, ...] = ("per-tensor", "per-channel", "per-block")
    activation_granularities: tuple[Granularity, ...] = ("per-tensor", "per-token")
    weight_schemes: tuple[str, ...] = ("symmetric", "asymmetric")
    activation_schemes: tuple[str, ...] = ("symmetric", "asymmetric")
    dynamic: bool = True
    static: bool = True
    integer_only: bool = False
    ops: tuple[str, ...] = ("dot_general", "convolution", "gather")


class Target(Strict):
    """Where a program runs."""

    name: str
    description: str = ""
    driver: str = "local-task"
    flags: tuple[str, ...] = ()
    kernels: str = "none"  # instruction set of our kernels: none, host, or a name
    device: Device = Device()


def load_toml(kind: str, name: str) -> tuple[str, dict[str, Any]]:
    """Name and content of `<kind>/<name>.toml`, or of the file that `name` is a path to."""
    path = data_file(kind, name)
    try:
        return path.stem, tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"cannot read {path.name}: {error}") from error


def load_target(name: str) -> Target:
    stem, data = load_toml("targets", name)
    return validate(Target, {"name": stem, **data}, where=f"target {name}")
