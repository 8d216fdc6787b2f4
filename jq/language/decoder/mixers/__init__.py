"""Mixers of a sequence's tokens. Every file in here is imported; one is known by being made."""

from jq.base.registry import import_all
from jq.language.decoder.mixers._base import Mixer

import_all(__name__)
