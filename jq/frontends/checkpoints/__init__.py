"""Checkpoints of Hugging Face that are quantized already: their codes become stored weights. Every
file in here is imported; a method is known by being defined."""

from jq.base.registry import import_all
from jq.frontends.checkpoints.method import unpacked_tensors

import_all(__name__)
