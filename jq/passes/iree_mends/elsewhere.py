"""Defects of others that are worked around elsewhere than by a pass; see `mend.told`."""

from __future__ import annotations

from collections.abc import Iterator

from jq.passes.base import known_passes
from jq.passes.iree_mends.mend import Defect, Mend, told


def defects() -> Iterator[Defect]:
    """All that are known: those of passes by the passes' names, and those of `ELSEWHERE`."""
    for _, kind in sorted(known_passes().items()):
        if issubclass(kind, Mend):
            yield from kind.defects()
    yield from ELSEWHERE


ELSEWHERE = tuple(
    told("""
Products that sum over an axis of size 0 crash the compiler.
Trap: traps/test_refused.py::test_a_sum_over_nothing
By: `jq/frontends/tracing/empty.py`

A parameter archive (`.irpa`) whose segments or entries lie outside the file ends the process:
offsets and lengths are added in 64 bits without a check, and the number of entries is believed.
No trap: the process ends
By: `jq/artifact/parameters.py`, which checks them first

The shape and type of a parameter are not checked, only its size.
Trap: iree/test_iree_defects.py::test_parameters_are_checked
By: `jq/artifact/parameters.py`

Constants that are computed from other constants may be evaluated in a wrong order, and are then
refused.
No trap: only large programs show it
Report: iree-org/iree#21286
By: `jq/iree/compiler.py`, which then compiles without evaluating constants

Floats of 4 bits (`f4E2M1FN`) are refused.
Trap: iree/test_element_types.py::test_floats_of_4_bits_are_compiled
By: fields in bytes, read by a table

Constants of 4 bits are wrong, or refused, at odd sizes.
Trap: traps/test_stored.py::test_constants_of_four_bits
Report: iree-org/iree#16219
By: nibbles packed in bytes

Values that are computed from small constants are evaluated at compile time, so that low-bit
weights are stored as floats.
Trap: traps/test_stored.py::test_small_weights_stay_bytes_by_default
By: `--iree-opt-const-expr-max-size-increase-threshold=0`

Resources of bfloat16 inside a dispatch are refused.
Trap: iree/test_iree_defects.py::test_bfloat16_resources_inside_a_dispatch
By: `jq/iree/handover.py`, which makes small constants dense ones

Arrays that the caller holds on the device are overwritten.
Trap: iree/test_iree_defects.py::test_device_arrays_of_the_caller_are_kept
Report: iree-org/iree#16168
By: `jq/iree/runtime.py`, which copies inputs

A microkernel op on tensors that returns a scalar crashes the compiler.
Trap: iree/test_iree_defects.py::test_a_microkernel_gives_a_number
By: `jq/kernels/schedule/prefetch.py`, which lets it store the scalar

Products with an `algorithm` are refused.
Trap: frontends/tracing/test_algorithms.py::test_iree_lowers_products_with_an_algorithm
By: `jq/frontends/tracing/approximate.py`, which makes them plain ones

XLA's CPU compiler fuses sums with what they add up into kernels of YNNPACK, which crash at seven
axes, and are wrong where the squares of a product of matrices with 40,000 rows are summed.
Trap: traps/test_xla.py::test_a_sum_at_seven_axes
Trap: traps/test_xla.py::test_a_sum_of_squares_after_a_product
Report: jax-ml/jax#39257
Seen: jaxlib 0.10, 0.11
By: options of each compilation of a reference (`jq/ir/memory/xla_options.py`)

XLA's CPU compiler computes what is written into a tensor while it writes it, although it reads
the same tensor, where a reshape follows (`x.at[1:].set(x[:-1]).reshape(1, -1)`).
Trap: traps/test_xla.py::test_a_tensor_that_is_written_into_while_it_is_read
Report: openxla/xla#49176
Seen: jaxlib 0.10 on
By: programs that may do this are compiled without fusions (`jq/ir/memory/xla_options.py`)

XLA's CPU compiler takes minutes for places that are computed in many steps.
Trap: traps/test_xla.py::test_places_of_many_steps_are_compiled
Seen: jaxlib 0.12 on
By: `_entangled` of `jq/ir/memory/xla_options.py`

XLA counts -32 leading zeros in negative 32-bit constants.
Trap: traps/test_mlir.py::test_xla_counts_leading_zeros_of_negative_constants
Seen: jaxlib 0.10
By: compiling what `scripts/suite.py differential` finds different in constants

The StableHLO pass that lowers quantized types truncates and wraps where it should round and
saturate.
Trap: traps/test_mlir.py::test_quantized_types_round_and_saturate
Seen: StableHLO in jaxlib 0.10 on
By: a lowering of our own

StableHLO's interpreter writes a scatter into its operand, which other ops may still read.
No trap: `tests/ir/oracle/test_oracles.py` has the values
Seen: StableHLO in jaxlib 0.10 on
By: `jq/ir/oracle/interpreter.py`, which gives it a copy

StableHLO's interpreter ends the process ("Incompatible index and shape") at a convolution whose
result has its features in front of its batch.
Trap: traps/test_mlir.py::test_features_may_come_first_in_the_interpreter
Seen: StableHLO in jaxlib 0.10, 0.11
By: `jq/ir/oracle/interpreter.py`, which exchanges the two and transposes the result

The Python bindings of MLIR erase an op whose result is still in use, without an error.
Trap: traps/test_mlir.py::test_erasing_a_used_op_is_refused
Seen: MLIR in jaxlib 0.10 on
By: `jq.ir.build.replace`
""")
)
