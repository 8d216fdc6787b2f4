"""Addition and subtraction, whose operands may be rounded to the type of the sum."""

from jq.ir.ops.base import OpRule


class Add(OpRule):
    op, sums = "add", True


class Subtract(Add):
    op = "subtract"
