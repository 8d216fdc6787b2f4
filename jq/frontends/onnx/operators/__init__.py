"""The operators, by kind. Every file in here is imported; an operator is there by being defined."""

from jq.base.registry import import_all

import_all(__name__)
