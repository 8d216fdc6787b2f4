"""Outlier channels of activations are scaled down, their weights up (SmoothQuant).

    y = x W   ->   y = (x / s) (diag(s) W)

so that one scale serves all channels of x (Xiao et al., "SmoothQuant: Accurate and Efficient
Post-Training Quantization for Large Language Models", 2022). The factors s are powers of two:
multiplying by them is exact, and the float program computes what it did.

Where x is linear in weights, they are divided; elsewhere x is, in front of the products: kernels
that quantize x take the factors along. Those of all products that read the same x are found
together, see `factors`."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from jq.formats import Encoding, get_format
from jq.ir import Program, dtype_of, shape_of
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery import _inputs as inputs
from jq.passes.recovery._grids import Integer, has_grid
from jq.passes.recovery._product_inputs import Input, find_inputs, scale_all
from jq.passes.recovery._smoothing import Weighted, factors
from jq.passes.recovery.gptq import Gptq
from jq.planning.moments.collect import collect
from jq.planning.operands import find_weight
from jq.target.settings import FLOAT

EQUALIZED = "equalize "  # in front of the names of what another pass has scaled
ROWS = 512  # of each activation that are looked at
SAMPLES = {"dynamic": 16, "static": 64}  # batches that are looked at: static ranges are extremes


class Smooth(Recovery):
    """Options: `gain`, how many times smaller the estimated error must be, else a group is left
    alone; `rounding`, see `factors`."""

    optional, in_ranges = False, True
    gain: float = 1.2
    rounding: float = 1.0

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return cx.settings.activations.format != FLOAT

    def recover(self, program: Program, cx: PassContext) -> bool:
        groups = {group.name: group for group in find_groups(program)}
        found = cx.known_smoothing
        if found is None:
            chosen = cx.settings.activations
            what = f"{self!r} {chosen.format} {chosen.mode} {list(groups)}"
            found = cx.found(program, what, lambda: self._search(program, cx, groups))
        found = {name: s for name, s in found.items() if not name.startswith(EQUALIZED)}
        return scale_all(program, groups, found, "")

    def _search(
        self, program: Program, cx: PassContext, groups: Mapping[str, Input]
    ) -> dict[str, np.ndarray]:
        """The factors of those groups where they are worth it."""
        assert cx.data
        uses = {name: group.uses(program) for name, group in groups.items()}
        wanted = [use.wanted for own in uses.values() for use in own]
        mode = cx.settings.activations.mode
        samples = inputs.spread(len(cx.data), SAMPLES[mode])
        encodings, gptq = inputs.planned_weights(program, cx), Gptq()
        solved = [own for own in encodings.items() if has_grid(own[1])]
        seen = collect(
            program,
            cx.data,
            wanted,
            power=1,
            full=False,
            rows=ROWS if mode == "dynamic" else 0,
            samples=samples,
            gains=cx.gains,
            others=[use.wanted for use in inputs.uses_in(program)],
            ahead=gptq.batches(cx, solved) if solved and gptq.chosen(cx.settings) else (),
            report=cx.report,
        )
        found: dict[str, np.ndarray] = {}
        for name, group in groups.items():
            products = [
                Weighted(
                    seen[use.wanted.name],
                    use.matrix.of(np.asarray(program.weights[use.matrix.name]).astype(np.float32)),
                    *_steps(use.matrix, encodings.get(use.matrix.name)),
                )
                for use in uses[name]
            ]
            s, gain = factors(
                products,
                static=mode == "static",
                rounding=self.rounding,
                count=len(samples) * math.prod(shape_of(group.value)) // group.width,
                bits=get_format(cx.settings.activations.format).integer_bits or 8,
            )
            LOG.info("smooth: %s: error / %.2f", name, gain)
            if gain >= self.gain:
                found[name] = s
        return found


def _steps(matrix: inputs.Matrix, enc: Encoding | None) -> tuple[float, int]:
    """`Weighted.most` and `rows` of a weight; those of 8 bits where it has no plain integers."""
    fmt = None if enc is None else get_format(enc.format)
    if enc is None or not isinstance(fmt, Integer):
        return 127.0, 0
    whole = enc.scheme == "asymmetric" or fmt.has_minimum
    most = (2**fmt.bits - 1) / 2 if whole else 2.0 ** (fmt.bits - 1) - 1
    try:
        return most, inputs.matrix_encoding(matrix, enc).block[0]
    except inputs.NotApplicable:
        return most, 0


def find_groups(program: Program) -> list[Input]:
    """Activations, and the products with a weight of their own that read them."""
    groups = []
    for i in find_inputs(program):
        readers = [
            (op, operand)
            for (op, operand), use in zip(i.readers, i.uses(program), strict=True)
            if isinstance(rule := rule_of(op), DotGeneral)
            and use.matrix.groups == len(use.wanted.contracted) == 1
            and find_weight(program, i.value, rule.roles(op)[operand]) is None
        ]
        if readers and dtype_of(i.value) == np.float32:
            group = replace(i, readers=readers)
            names = [use.matrix.name for use in group.uses(program)]
            groups.append(replace(group, channels={n: i.channels[n] for n in names}))
    return groups
