"""Deciding: per contraction and per tensor either a format, or the reason for declining.

`plan` reads a float program and changes nothing; the passes carry out what it says.
"""

from __future__ import annotations

from jq.planning.decisions import OpPlan, QuantPlan, TensorPlan
from jq.planning.encodings import weight_block
from jq.planning.operands import WeightUse, contractions, find_weight, op_name
from jq.planning.planner import plan

__all__ = [
    "OpPlan",
    "QuantPlan",
    "TensorPlan",
    "WeightUse",
    "contractions",
    "find_weight",
    "op_name",
    "plan",
    "weight_block",
]
