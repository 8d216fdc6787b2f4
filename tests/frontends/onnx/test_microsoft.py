"""Operators of `com.microsoft` that compute in float, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jq.base.errors import UserError
from tests.frontends.onnx.against_ort import both, one_node

RNG = np.random.default_rng(20)
B, S, N, H = 2, 5, 4, 16  # batch, length, heads, size of a head
W = N * H


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


def angles(length: int, half: int) -> dict[str, np.ndarray]:
    turns = RNG.uniform(0, 6, (length, half))
    return {"cos": np.cos(turns).astype(np.float32), "sin": np.sin(turns).astype(np.float32)}


def check(op: str, inputs: dict[str, Any], outputs: int = 1, known: Any = (), **given: Any) -> None:
    model = one_node(op, inputs, outputs, **given)
    ours, theirs = both(model, known, inputs)
    for y, expected in zip(ours, theirs, strict=True):
        assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-6)


PLAIN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "trilu": ("Trilu", {"x": real(3, 7)}, {}),
    "expand": ("ExpandDims", {"x": real(3, 7), "axis": ints(1)[0]}, {"constants": ("axis",)}),
    "gather": ("GatherND", {"x": real(3, 7), "ids": np.asarray([[0, 1], [2, 6]])}, {}),
    "grid": ("GridSample", {"x": real(1, 2, 5, 6), "g": real(1, 3, 4, 2)}, {}),
    "inverse": ("Inverse", {"x": np.eye(4, dtype=np.float32) * 3 + real(4, 4) / 4}, {}),
    "transposed": ("TransposeMatMul", {"a": real(3, 7), "b": real(5, 7)}, {"transB": 1}),
    "gelu": ("Gelu", {"x": real(3, 7)}, {}),
    "bias": ("BiasGelu", {"x": real(3, 7), "b": real(7)}, {}),
    "fast": ("FastGelu", {"x": real(3, 7)}, {}),
    "fast bias": ("FastGelu", {"x": real(3, 7), "b": real(7)}, {}),
    "quick": ("QuickGelu", {"x": real(3, 7)}, {"alpha": 1.5}),
    "skip": ("SkipLayerNormalization", {"x": real(B, S, W), "s": real(B, S, W), "g": real(W)}, {}),
    "skip all": (
        "SkipLayerNormalization",
        {"x": real(B, S, W), "s": real(S, W), "g": real(W), "b": real(W), "c": real(W)},
        {"epsilon": 1e-3},
    ),
    "skip rms": (
        "SkipSimplifiedLayerNormalization",
        {"x": real(B, S, W), "s": real(B, S, W), "g": real(W), "c": real(W)},
        {"epsilon": 1e-5},
    ),
    "rms": ("SimplifiedLayerNormalization", {"x": real(B, S, W), "g": real(W)}, {"domain": ""}),
    "product": (
        "FusedMatMul",
        {"a": real(2, 3, 5, 4), "b": real(2, 3, 6, 4)},
        {"transB": 1, "alpha": 0.5},
    ),
    "batch in front": (
        "FusedMatMul",
        {"a": real(5, 2, 3, 4), "b": real(2, 3, 4, 6)},
        {"transBatchA": 1},
    ),
    "conv": (
        "FusedConv",
        {"x": real(1, 3, 6, 6), "w": real(4, 3, 3, 3), "b": real(4)},
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1, 1, 1, 1]},
    ),
    "gemm": (
        "FusedGemm",
        {"a": real(3, 4), "b": real(5, 4), "c": real(5)},
        {"activation": "Relu", "transB": 1},
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_activations_norms_and_products(name: str) -> None:
    op, inputs, attributes = PLAIN[name]
    check(op, inputs, **attributes)


def test_the_sum_behind_a_skip_is_an_output() -> None:
    inputs = {"x": real(B, S, W), "s": real(B, S, W), "g": real(W), "b": real(W), "c": real(W)}
    model = one_node("SkipLayerNormalization", inputs, 4)
    model.graph.node[0].output[1:3] = ["", ""]
    del model.graph.output[1:3]
    ours, theirs = both(model, (), inputs)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_embeddings(segments: bool, positions: bool) -> None:
    inputs = {
        "ids": RNG.integers(0, 11, (B, S)).astype(np.int32),
        "segments": RNG.integers(0, 2, (B, S)).astype(np.int32) if segments else None,
        "words": real(11, W),
        "places": real(9, W),
        "kinds": real(2, W) if segments else None,
        "g": real(W),
        "b": real(W),
        "mask": ints([1, 1, 1, 0, 0], [1, 1, 1, 1, 1]),
        "at": RNG.integers(0, 9, (B, S)).astype(np.int32) if positions else None,
    }
    check("EmbedLayerNormalization", inputs, 3)


MASKS = {
    "none": None,
    "keys": ints([1, 1, 1, 0, 0], [1, 1, 1, 1, 1]),
    "pairs": RNG.integers(0, 2, (B, S, S)).astype(np.int32),
    "ends": ints(3, 5),
    "both ends": ints(4, 5, 1, 0),
}


@pytest.mark.parametrize("one_way", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask: str, one_way: int) -> None:
    inputs = {"x": real(B, S, 12), "w": real(12, 3 * W) / 4, "b": real(3 * W), "mask": MASKS[mask]}
    check("Attention", inputs, num_heads=N, unidirectional=one_way)


def test_attention_with_a_past_a_bias_and_other_sizes() -> None:
    inputs = {"x": real(B, S, 12), "w": real(12, 3 * W) / 4, "b": real(3 * W), "mask": None}
    state = {"past": real(2, B, N, 3, H)}
    check("Attention", inputs | state, 2, num_heads=N, unidirectional=1, scale=0.3)
    check("Attention", inputs | {"past": None, "bias": real(1, N, S, S)}, num_heads=N)
    inputs |= {"w": real(12, 2 * W + 16) / 4, "b": real(2 * W + 16)}
    check("Attention", inputs, num_heads=N, qkv_hidden_sizes=[W, W, 16])


HEADS: dict[str, dict[str, Any]] = {
    "self": {"q": real(B, S, W), "k": real(B, S, W), "v": real(B, S, W)},
    "cross": {"q": real(B, S, W), "k": real(B, 7, W), "v": real(B, 7, 16)},
    "bias": {"q": real(B, S, W), "k": real(B, 7, W), "v": real(B, 7, W), "b": real(3 * W)},
    "ready": {"q": real(B, S, W), "k": real(B, N, 7, H), "v": real(B, N, 7, H)},
    "padding": {
        "q": real(B, S, W),
        "k": real(B, S, W),
        "v": real(B, S, W),
        "b": None,
        "mask": MASKS["keys"],
        "bias": real(B, 1, S, S),
    },
    "past": {
        "q": real(B, S, W),
        "k": real(B, S, W),
        "v": real(B, S, W),
        "b": real(3 * W),
        "mask": None,
        "bias": real(1, N, S, S + 4),
        "pk": real(B, N, 4, H),
        "pv": real(B, N, 4, H),
    },
}


@pytest.mark.parametrize(
    ("name", "one_way"), [(n, 0) for n in HEADS] + [(n, 1) for n in ("self", "padding", "past")]
)
def test_multi_head_attention(name: str, one_way: int) -> None:
    outputs = 3 if name == "past" else 1
    check("MultiHeadAttention", HEADS[name], outputs, num_heads=N, unidirectional=one_way)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["rows", "heads", "partial", "offset"])
def test_rotary_embedding(form: str, interleaved: int) -> None:
    ids = RNG.integers(0, 9, (B, S)).astype(np.int64)
    if form == "offset":
        ids = np.asarray([3], np.int64)
    x = real(B, N, S, H) if form == "heads" else real(B, S, W)
    given = {"interleaved": interleaved}
    if form == "partial":
        given |= {"num_heads": N, "rotary_embedding_dim": 8}
    half = 4 if form == "partial" else H // 2
    check("RotaryEmbedding", {"x": x, "ids": ids, **angles(9, half)}, **given)


@pytest.mark.parametrize("ids", [[8], [5], [-1], [[9, 0, 0, 0, 0]], [[0, 0, -1, 0, 0]]])
def test_constant_positions_are_rows_of_the_tables(ids: list[Any]) -> None:
    given = {"x": real(1, S, W), "ids": np.asarray(ids, np.int64), **angles(9, H // 2)}
    with pytest.raises(UserError, match=r"positions are .* tables have shape \[9, \d+\]"):
        check("RotaryEmbedding", given, constants=("ids",))


@pytest.mark.parametrize("rows", [4, 3])
def test_tables_have_a_row_for_every_position(rows: int) -> None:
    given = {"x": real(1, S, W), "ids": np.asarray([0], np.int64), **angles(rows, H // 2)}
    with pytest.raises(UserError, match=f"each of {S} positions"):
        check("RotaryEmbedding", given)
    cached = group_query(S, 0, S, FORMS[0][2], True)
    cached |= {name: cached[name][:rows] for name in ("cos", "sin")}
    known = {"constants": ("total",), "outputs": 3, "do_rotary": 1}
    with pytest.raises(UserError, match=f"each of {S} positions"):
        check("GroupQueryAttention", cached, **known, num_heads=N, kv_num_heads=2)


GROUPS: dict[str, dict[str, Any]] = {
    "prompt": {},
    "softcap": {"softcap": 2.0},
    "window": {"local_window_size": 3},
    "smooth": {"smooth_softmax": 1},
    "scale": {"scale": 0.2},
    "turned": {"do_rotary": 1},
    "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
}


def group_query(length: int, past: int, total: int, last: Any, turned: bool) -> dict[str, Any]:
    batch = len(last)

    def state() -> Any:
        return real(batch, 2, past, H) if past else None

    inputs = {
        "q": real(batch, length, W),
        "k": real(batch, length, 2 * H),
        "v": real(batch, length, 2 * H),
        "pk": state(),
        "pv": state(),
        "last": ints(*last),
        "total": np.asarray(total, np.int32),
    }
    return inputs | (angles(16, H // 2) if turned else {})


FORMS = [(S, 0, (4, 4)), (1, 6, (6, 6)), (3, 6, (8,)), (1, 6, (3, 6))]  # length, past, last key
PAIRS = [(n, *f) for n in ("prompt", "turned") for f in FORMS]
PAIRS += [(n, *FORMS[-1]) for n in GROUPS if n not in ("prompt", "turned")]


@pytest.mark.parametrize(("name", "length", "past", "last"), PAIRS)
def test_group_query_attention(name: str, length: int, past: int, last: Any) -> None:
    given = GROUPS[name]
    inputs = group_query(length, past, length + past, last, "do_rotary" in given)
    model = one_node("GroupQueryAttention", inputs, 3, num_heads=N, kv_num_heads=2, **given)
    ours, theirs = both(model, ("total",), inputs)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-5, atol=2e-6)
    for y, expected in zip(ours[1:], theirs[1:], strict=True):
        assert y.shape == expected.shape
        for row, wanted, end in zip(y, expected, last, strict=True):
            np.testing.assert_allclose(
                row[:, : end + 1], wanted[:, : end + 1], rtol=2e-5, atol=2e-6
            )
