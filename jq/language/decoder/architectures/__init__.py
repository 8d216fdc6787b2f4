"""The architectures that are known. Every file in here is imported; one is known by being made."""

from jq.base.registry import import_all
from jq.language.decoder.architectures import names
from jq.language.decoder.architectures._base import FULL, INTERVAL, KEYS, Architecture, Key

import_all(__name__)
