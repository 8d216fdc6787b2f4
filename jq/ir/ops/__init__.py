"""Knowledge about each op, and the encodings of the values between ops."""

from jq.ir.ops.base import Axes, Contraction, Movement, Role
from jq.ir.ops.dims import Dims
from jq.ir.ops.layout import CONVOLUTION, Layout, groups_of
from jq.ir.ops.lookup import contraction, rule_named, rule_of
from jq.ir.ops.selection import elements, reduction
