from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jq.driver.audit import UNSEEN, Audit, audit_program
from jq.iree.dump.products import MultiplyAdd
from jq.iree.dump.reader import Contraction, Dump, Kernel
from jq.iree.dump.stored import StoredConstant, stored_bytes

KEYS = {"weights", "contractions", "float_ops", "module_bytes", "parameter_bytes"}


def const(name: str, shape: tuple[int, ...], dtype: str, kind: str = "inline") -> StoredConstant:
    return StoredConstant((name,), shape, dtype, stored_bytes(shape, dtype), kind)


def dot(name: str, types: tuple[str, str, str], work: int = 1) -> Contraction:
    return Contraction("matmul", MultiplyAdd(*types), work, (name,))


I8, F32 = ("i8", "i8", "i32"), ("f32", "f32", "f32")
ENCODING = {
    "format": "int8",
    "shape": [64, 32],
    "granularity": "per-channel",
    "float_dtype": "float32",
    "parts": {
        "codes": {"dtype": "int8", "shape": [64, 32]},
        "scale": {"dtype": "float32", "shape": [1, 32]},
    },
}
OP = {
    "name": "l1/w",
    "op": "dot_general",
    "decision": "integer",
    "lhs": "i8",
    "rhs": "i8",
    "acc": "i32",
}
STORED = [const("l1/w:codes", (64, 32), "i8"), const("l1/w:scale", (1, 32), "f32")]


def run(
    constants: list[StoredConstant] = STORED,
    contractions: tuple[Contraction, ...] = (dot("l1/w", I8),),
    kernels: tuple[Kernel, ...] = (),
    derived: tuple[StoredConstant, ...] = (),
    ops: tuple[dict[str, Any], ...] = (OP,),
    encodings: dict[str, Any] | None = None,
    splats: tuple[StoredConstant, ...] = (),
    **manifest: Any,
) -> Audit:
    dump = Dump(tuple(constants), contractions, kernels, derived, splats=splats)
    claims = {"ops": list(ops), "encodings": encodings or {"l1/w": ENCODING}, **manifest}
    return audit_program(claims, dump, 3000, 500)


def test_what_is_stored_and_computed_as_claimed_is_verified() -> None:
    audit = run()
    assert audit.verified
    assert not audit.warnings
    document = audit.to_dict()
    assert set(document) >= {*KEYS, "float_parameter_bytes"}
    assert document["weights"] == [
        {
            "name": "l1/w",
            "shape": [64, 32],
            "format": "int8",
            "granularity": "per-channel",
            "stored_bytes": 64 * 32 + 32 * 4,
            "float_bytes": 64 * 32 * 4,
        }
    ]
    assert document["contractions"] == [
        {
            "name": "l1/w",
            "op": "dot_general",
            "lhs": "i8",
            "rhs": "i8",
            "acc": "i32",
            "kernel": None,
            "merged_from": [],
        }
    ]
    assert (document["module_bytes"], document["parameter_bytes"]) == (3000, 500)
    assert document["float_parameter_bytes"] == 64 * 32 * 4
    assert json.loads(json.dumps(document)) == document
    assert "l1/w" in str(audit)


def test_a_weight_stored_as_float_is_shown_as_float() -> None:
    audit = run([const("l1/w", (64, 32), "f32", "global")])
    assert not audit.verified
    assert (audit.weights[0].format, audit.weights[0].stored_bytes) == ("f32", 64 * 32 * 4)
    assert "stored as f32" in audit.warnings[0]


def test_a_second_float_copy_is_seen_beside_the_codes() -> None:
    audit = run([*STORED, const("l1/w", (32, 64), "f32", "global")])
    assert not audit.verified
    assert audit.weights[0].stored_bytes == 64 * 32 * 5 + 32 * 4


def test_a_weight_that_is_not_there_is_not_verified() -> None:
    audit = run([const("l1/w:scale", (1, 32), "f32")])
    assert not audit.verified
    assert audit.weights[0].stored_bytes == 128


def test_a_weight_of_which_nothing_is_left_is_folded() -> None:
    """An equal one has its data; nothing in the program could hold it."""
    ops, both = ({**OP, "weight": "l1/w"},), {"l1/w": ENCODING, "equal": ENCODING}
    equal = [const("equal:codes", (64, 32), "i8"), const("equal:scale", (1, 32), "f32")]
    audit = run(equal, contractions=(), ops=ops, encodings=both)
    assert audit.verified
    assert (audit.weights[0].format, audit.contractions) == ("folded", ())
    nameless = StoredConstant(("c0",), (64, 32), "f32", 64 * 32 * 4)
    assert not run([nameless], contractions=()).verified


def test_packed_and_padded_codes_with_column_sums_are_fine() -> None:
    packed = [const("l1/w:packed", (2, 16, 128), "i8"), const("l1/w:sums", (32,), "i32")]
    audit = run([*packed, STORED[1]])
    assert audit.verified
    assert audit.weights[0].stored_bytes == 4096 + 128 + 128


def test_what_is_added_to_the_columns_of_a_small_weight_is_no_copy_of_it() -> None:
    small = {**ENCODING, "shape": [4, 4], "parts": {"codes": {"dtype": "int8", "shape": [4, 4]}}}
    packed = const("l1/w:packed", (1, 1, 64), "i8")
    columns = [const("l1/w:init", (16,), "i32"), const("l1/w:column_scale", (16,), "f32")]
    assert run([packed, *columns], encodings={"l1/w": small}).verified
    # Without codes, or under the name of codes, it is the weight.
    assert not run(columns, encodings={"l1/w": small}).verified
    wide = [const("l1/w:codes", (16,), "f32"), const("l1/w", (4, 4), "f32")]
    for constant in wide:
        assert not run([packed, *columns, constant], encodings={"l1/w": small}).verified


def test_a_weight_of_one_element_may_be_a_number_in_the_program() -> None:
    one = {**ENCODING, "shape": [1, 1], "parts": {"codes": {"dtype": "int8", "shape": [1, 1]}}}
    assert run([], encodings={"l1/w": one}).verified


def splat(name: str, shape: tuple[int, ...], dtype: str) -> StoredConstant:
    return StoredConstant((name,), shape, dtype, 0, "splat")


def test_codes_that_are_all_equal_are_a_number_in_the_program() -> None:
    for name, shape in (("l1/w:codes", (64, 32)), ("l1/w:packed", (2, 16, 128))):
        audit = run(STORED[1:], splats=(splat(name, shape, "i8"),))
        assert audit.verified
        assert (audit.weights[0].format, audit.weights[0].stored_bytes) == ("int8", 128)
    scale = splat("l1/w:scale", (1, 32), "f32")
    assert run([], splats=(splat("l1/w:codes", (64, 32), "i8"), scale)).verified
    zeros = splat("l1/w:zeros", (64, 32), "f32")  # of no weight whose codes are stored
    assert run(splats=(zeros,)).verified


def test_a_float_that_is_one_number_is_no_weight_of_few_bits() -> None:
    for kind in ("f32", "i16"):
        audit = run(STORED[1:], splats=(splat("l1/w", (64, 32), kind),))
        assert not audit.verified and f"stored as {kind}" in audit.warnings[0]
    both = (splat("l1/w:codes", (64, 32), "i8"), splat("l1/w", (64, 32), "f32"))
    assert not run([], splats=both).verified
    assert not run([const("l1/w", (64, 32), "f32")], splats=both[:1]).verified
    assert not run(STORED[1:], splats=(splat("l1/w:codes", (64, 24), "i8"),)).verified
    assert not run(STORED[1:], splats=(splat("other:codes", (64, 32), "i8"),)).verified


def test_kernels_keep_small_codes_in_fewer_bits() -> None:
    """The name of a kernel has their width."""
    ops = ({**OP, "weight": "l1/w", "kernel": "gemv_8x64x32_int2_block32_split_f5f8"},)
    kernels = (Kernel(("l1/w",), (MultiplyAdd(*I8),)),)
    for count, verified in ((512, True), (511, False)):
        packed = [const("l1/w:packed", (count,), "i8")]
        assert run(packed, (), kernels, ops=ops).verified == verified
    assert not run([const("l1/w:packed", (512,), "i8")]).verified


def test_bytes_of_a_kernel_hold_scales_and_padding_beside_its_codes() -> None:
    """A kernel fills 16 columns up to 32; codes that stand for unequal steps are read as int8."""
    shape = {"shape": [64, 16], "parts": {"blocks": {"dtype": "int8", "shape": [16, 2, 24]}}}
    claim = {"l1/w": {**ENCODING, **shape, "format": "q5_1"}}
    for bits, size, warnings in ((5, 1024, ()), (8, 1600, ("keeps 8 bits an element",))):
        ops = ({**OP, "weight": "l1/w", "kernel": f"gemv_8x64x16_int{bits}_block32_f5f8"},)
        kernels, packed = (
            (Kernel(("l1/w",), (MultiplyAdd(*I8),)),),
            [const("l1/w:packed", (size,), "i8")],
        )
        audit = run(packed, (), kernels, ops=ops, encodings=claim)
        assert audit.verified and audit.weights[0].format == "q5_1"
        assert all(text in said for text, said in zip(warnings, audit.warnings, strict=True))
        stored = [const("l1/w", (64, 16), "f32")]
        assert not run(stored, (), kernels, ops=ops, encodings=claim).verified


def test_four_bit_codes_stored_as_bytes_are_noticed() -> None:
    four = {**ENCODING, "format": "int4"}
    four["parts"] = {"codes": {"dtype": "int8", "shape": [32, 32]}}
    packed = [const("l1/w:codes", (32, 32), "i8")]
    assert run(packed, encodings={"l1/w": four}).verified
    assert not run(STORED[:1], encodings={"l1/w": four}).verified


def test_expansion_at_load_time_is_a_warning() -> None:
    audit = run(derived=(const("l1/w", (64, 32), "f32"),))
    assert audit.verified
    assert "expanded to f32" in audit.warnings[0]


def test_a_float_contraction_is_never_reported_as_integer() -> None:
    audit = run(contractions=(dot("l1/w", F32),))
    assert not audit.verified
    assert [(c.lhs, c.rhs, c.acc) for c in audit.contractions] == [F32]
    assert audit.float_ops[0].name == "l1/w"


@pytest.mark.parametrize("claimed", ["i4 i4 i4", "ui4 ui4 ui4", "i2 i8 i8", "ui8 ui8 ui8"])
def test_bytes_hold_integers_of_fewer_bits(claimed: str) -> None:
    """IREE's program has a byte for each, and no signs."""
    claim = {**OP, "decision": "float"}
    claim |= dict(zip(("lhs", "rhs", "acc"), claimed.split(), strict=True))
    assert run(ops=(claim,), contractions=(dot("l1/w", ("i8", "i8", "i8")),)).verified
    assert not run(ops=(claim,), contractions=(dot("l1/w", ("i16", "i16", "i32")),)).verified


def test_complex_products_are_computed_from_their_parts() -> None:
    claim = {**OP, "decision": "float"} | dict.fromkeys(("lhs", "rhs", "acc"), "complex<f32>")
    assert run(contractions=(dot("l1/w", F32),), ops=(claim,)).verified


def test_the_largest_contraction_of_a_name_counts() -> None:
    assert run(contractions=(dot("l1/w", I8, 100), dot("l1/w", F32, 5))).verified
    assert not run(contractions=(dot("l1/w", I8, 5), dot("l1/w", F32, 100))).verified
    assert not run(contractions=(dot("l1/w", I8, 5), dot("l1/w", F32, 5))).verified


def test_operands_may_be_swapped() -> None:
    claim = {**OP, "lhs": "f32", "rhs": "i8", "acc": "f32"}
    audit = run(ops=(claim,), contractions=(dot("l1/w", ("i8", "f32", "f32")),))
    assert audit.verified
    assert audit.contractions[0].lhs == "f32"


def test_a_contraction_that_is_not_there_has_no_types() -> None:
    audit = run(contractions=())
    assert not audit.verified
    assert {audit.contractions[0].lhs, audit.contractions[0].acc} == {UNSEEN}


def test_two_products_of_a_weight_may_be_one() -> None:
    first = {**OP, "weight": "l1/w"}
    second = {**first, "name": "l1/w#2"}
    audit = run(ops=(first, second))
    assert audit.verified
    assert [(c.name, c.acc) for c in audit.contractions] == [("l1/w", "i32"), ("l1/w#2", "i32")]
    for other in ({"weight": None}, {"acc": "f32"}, {"kernel": "jq_gemm"}, {"op": "convolution"}):
        assert not run(ops=(first, {**second, **other})).verified


def test_a_kernel_must_hold_the_claimed_product() -> None:
    claim = {**OP, "kernel": "jq_gemm", "merged_from": ["q", "k"]}
    names = ("jq_gemm", "l1/w")
    good = (Kernel(names, (MultiplyAdd("bf16", "bf16", "f32"), MultiplyAdd(*I8))),)
    audit = run(ops=(claim,), contractions=(), kernels=good)
    assert audit.verified
    assert (audit.contractions[0].kernel, audit.contractions[0].merged_from) == (
        "jq_gemm",
        ("q", "k"),
    )
    assert not run(ops=(claim,), contractions=(), kernels=()).verified
    other = (Kernel(("jq_gemm", "l2/w"), (MultiplyAdd(*I8),)),)
    assert not run(ops=(claim,), contractions=(), kernels=other).verified
    floats = (Kernel(names, (MultiplyAdd(*F32),)),)
    assert not run(ops=(claim,), contractions=(), kernels=floats).verified


WIDER = [
    ("float", ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32"), True),
    ("float", ("f16", "f32", "f16"), ("f32", "f16", "f32"), True),
    ("float", ("f32", "f32", "bf16"), ("bf16", "f32", "f32"), True),
    ("integer", ("bf16", "i8", "bf16"), ("bf16", "i8", "f32"), True),
    ("integer", ("i8", "i8", "i32"), ("i8", "i8", "i64"), True),
    ("integer", ("i8", "i8", "i32"), ("i8", "i8", "f32"), False),
    ("integer", ("i8", "i8", "i32"), ("i8", "i8", "i16"), False),
    ("integer", ("i8", "i8", "i32"), ("i32", "i8", "i32"), False),
    ("float", ("bf16", "bf16", "bf16"), ("f32", "bf16", "f32"), False),
    # A weight may be converted inside of the product; nothing else has fewer bits than was meant.
    ("integer", ("i16", "i16", "i64"), ("i16", "i8", "i64"), True),
    ("integer", ("i16", "i16", "i64"), ("i8", "i8", "i64"), False),
    ("integer", ("i16", "i8", "i64"), ("i8", "i8", "i64"), False),
    ("weight-only", ("f64", "f64", "f64"), ("f64", "f32", "f64"), True),
    ("weight-only", ("f32", "f32", "f32"), ("bf16", "bf16", "f32"), False),
]


@pytest.mark.parametrize(("decision", "meant", "is_", "good"), WIDER)
def test_a_wider_sum_is_no_defect(decision: str, meant: Any, is_: Any, good: bool) -> None:
    claim = {**OP, "decision": decision, **dict(zip(("lhs", "rhs", "acc"), meant, strict=True))}
    audit = run(ops=(claim,), contractions=(dot("l1/w", is_),))
    assert audit.verified == good
    if good:  # what is there is said
        assert audit.contractions[0].acc == is_[2]


def test_sizes_are_told_in_words() -> None:
    """Nothing of 0 bytes is told, and no sum is left to the reader."""
    weights = {"l1/w": {"shape": [64, 32], "dtype": "float32"}}
    whole = run(weights=weights)
    first, *_ = whole.summary().splitlines()
    stored = "2.93 KiB of program and 500 B of weights beside it"
    assert first == f"{stored}, 42.7 % of the 8 KiB of the float weights"
    alone = replace(whole, parameter_bytes=0, float_parameter_bytes=0)
    assert alone.summary().splitlines()[0] == "2.93 KiB of program"
    tiny = replace(whole, float_parameter_bytes=100).summary().splitlines()[0]
    assert tiny == f"{stored}, 35 times the 100 B of the float weights"


def test_what_stayed_float_and_why() -> None:
    kept = {**OP, "name": "head", "decision": "float", "reason": "a rule keeps it float"}
    kept |= {"lhs": "f32", "rhs": "f32", "acc": "f32"}
    audit = run(ops=(OP, kept), contractions=(dot("l1/w", I8), dot("head", F32), dot("new", F32)))
    assert audit.verified
    assert [(f.name, f.reason) for f in audit.float_ops] == [
        ("head", "a rule keeps it float"),
        ("new", "not part of the plan"),
    ]
    assert [c.name for c in audit.contractions] == ["l1/w", "head", "new"]


def test_weights_that_stay_float_are_listed() -> None:
    weights = {
        "l1/w": {"shape": [64, 32], "dtype": "float32"},
        "b": {"shape": [9], "dtype": "float32"},
    }
    audit = run([*STORED, const("b", (9,), "f32")], weights=weights)
    assert [(w.name, w.format, w.stored_bytes) for w in audit.weights] == [
        ("l1/w", "int8", 64 * 32 + 128),
        ("b", "f32", 36),
    ]
    assert audit.float_parameter_bytes == 64 * 32 * 4 + 36


def test_names_of_shared_and_repeated_parts() -> None:
    repeated = [const("l1/w:codes#2", (64, 32), "i8"), const("l1/w:scale", (1, 32), "f32")]
    assert run(repeated).verified
    longer = [*STORED, const("l1/w2:codes", (64, 32), "i8")]
    assert run(longer).weights[0].stored_bytes == 64 * 32 + 128
    assert run(longer).other_constant_bytes == 64 * 32


def test_small_parts_that_lost_their_name_are_found_by_type_and_size() -> None:
    def nameless(count: int, dtype: str) -> StoredConstant:
        return StoredConstant((), (count,), dtype, stored_bytes((count,), dtype))

    others = [nameless(32, "f32"), nameless(32, "f32"), nameless(31, "f32"), nameless(32, "i32")]
    audit = run([STORED[0], *others])
    assert audit.verified
    assert audit.weights[0].stored_bytes == 64 * 32 + 32 * 4
    assert audit.other_constant_bytes == 4 * (32 + 31 + 32)


def test_codes_without_a_name_count_too() -> None:
    assert run([StoredConstant((), (64, 32), "i8", 2048), STORED[1]]).verified


def test_codes_may_have_the_name_of_the_op_that_reads_them_but_not_of_another_weight() -> None:
    def renamed(name: str) -> StoredConstant:
        return StoredConstant((name,), (8, 8, 32), "i8", 2048)

    assert run([renamed("l1/relu"), STORED[1]]).verified
    assert not run([renamed("l1/w2:codes"), STORED[1]]).verified


def test_what_kernels_carry_for_others_is_not_the_weights() -> None:
    carried = [const("l1/w:column_scale", (32,), "f32"), const("l1/w:column_bias", (32,), "f32")]
    sums = const("l1/w:init", (32,), "i32")
    bias = {"l1/b": {"shape": [32], "dtype": "float32"}}
    audit = run([STORED[0], *carried, sums], weights=bias)
    assert [(w.name, w.stored_bytes) for w in audit.weights] == [
        ("l1/w", 64 * 32 + 32 * 4 + 32 * 4),
        ("l1/b", 32 * 4),
    ]
    assert audit.other_constant_bytes == 0


def test_a_stack_may_be_stored_slice_by_slice() -> None:
    gammas = [const(f"l1/w:{i}:gamma", (9,), "f32") for i in range(3)]
    stack = {"norm": {"shape": [3, 9], "dtype": "float32"}}
    audit = run([*STORED, *gammas], weights=stack)
    assert audit.weights[1].stored_bytes == 3 * 9 * 4
    assert audit.other_constant_bytes == 0
    assert run([*STORED, *gammas[:2]], weights=stack).weights[1].format == "folded"


def test_a_weight_that_went_into_another_is_folded() -> None:
    audit = run(weights={"mean": {"shape": [7], "dtype": "float32"}})
    assert (audit.weights[1].format, audit.weights[1].stored_bytes) == ("folded", 0)


def test_parts_that_a_kernel_pads_are_still_the_weights() -> None:
    padded = const("l1/w:column_scale", (48,), "f32")
    assert run([STORED[0], padded]).weights[0].stored_bytes == 64 * 32 + 48 * 4


def test_packing_that_costs_more_than_float_is_a_warning() -> None:
    audit = run([const("l1/w:packed", (64 * 32, 64), "i8"), STORED[1]])
    assert audit.verified
    assert "in float it has 8192" in audit.warnings[0]
