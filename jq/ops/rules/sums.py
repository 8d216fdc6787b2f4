"""Rules of add and subtract: what they add may be rounded to one type before."""

from __future__ import annotations

from jq.ops.base import OpRule


class Add(OpRule):
    op, sums = "add", True


class Subtract(Add):
    op = "subtract"
