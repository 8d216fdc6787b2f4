"""The rule of an op, and which ops are elementwise; modules of `jq.ir.ops.rules` are imported when
a rule is first asked for."""

from jq.base.registry import import_all
from jq.ir import Op, kind_of
from jq.ir.decisions import declined
from jq.ir.ops.base import Contraction, OpRule


def known_ops() -> dict[str, OpRule]:
    """The rules by the names of their ops."""
    import_all("jq.ir.ops.rules")
    return OpRule.registry


def rule_of(op: Op) -> OpRule | None:
    """The rule of an op; None where nothing is known of it, or the device has it in float alone."""
    if declined(op):
        return None
    rule = known_ops().get(kind_of(op).removeprefix("stablehlo."))
    return rule if rule is not None and rule.applies(op) else None


def rule_named(op: str) -> OpRule | None:
    """The rule of an op by its name, with or without the dialect's prefix, whether or not it
    applies to an instance of the op (`rule_of`)."""
    return known_ops().get(op.removeprefix("stablehlo."))


def contraction(op: str) -> Contraction | None:
    """The rule of a contraction by its name, as `rule_named` gives it; None for others."""
    rule = rule_named(op)
    return rule if isinstance(rule, Contraction) else None


def of_one_type(op: Op) -> tuple[int, ...]:
    """Numbers of the operands that have the quantized type of the result, where the op is written
    on codes; none for an op that is not."""
    rule = rule_named(kind_of(op))
    return () if rule is None else rule.of_one_type(op)


def multiplies(op: Op) -> bool:
    """True if the op is a contraction of two operands."""
    rule = contraction(op.operation.name)
    return rule is not None and len(rule.roles(op)) == 2


def takes_any_order(op: Op) -> bool:
    """True if the op is a contraction that transposes next to it are a part of."""
    rule = contraction(op.operation.name)
    return rule is not None and rule.any_order


def makes_feature_map(op: Op) -> bool:
    """True if the op is a contraction whose result is a feature map."""
    rule = contraction(op.operation.name)
    return rule is not None and rule.feature_map


def contraction_names() -> list[str]:
    """The ops that can be quantized."""
    return sorted(name for name, rule in known_ops().items() if isinstance(rule, Contraction))


def is_product(op: Op) -> bool:
    """True if an op multiplies two tensors and may do so on codes."""
    rule = rule_of(op)
    return isinstance(rule, Contraction) and len(rule.roles(op)) > 1
