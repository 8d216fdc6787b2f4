"""Shapes of the operands of ONNX Runtime's attention and recurrent operators."""

from jq.frontends.onnx.operand_shapes import Operands, Patterns, shapes
from jq.frontends.onnx.registry import MICROSOFT

MASK = "B / 2*B / B T / B S T"  # how many keys, where they end and begin, which, which of each
ADDED = "1|B 1|num_heads S T"


@shapes(MICROSOFT, "Attention", "QAttention")
def attention(given: Operands) -> Patterns:
    """Weights of queries, keys and values are side by side, of one size if no attribute says so."""
    x, past = given.shapes["x"], given.shapes.get("past", ())
    if len(x) != 3:
        return {"x": "B S I"}
    keys, heads = x[1] + (past[3] if len(past) == 5 else 0), given.get("num_heads", 1)
    sizes = given.attributes.get("qkv_hidden_sizes")
    width = given.shapes["weights"][-1] if given.shapes["weights"] else 0
    if not sizes and width % (3 * heads):
        shape = list(given.shapes["weights"])
        reason = f"whose columns are not three times those of {heads} heads"
        raise given.refuse(f"its operand 'weights' has shape {shape}, {reason}")
    total = sum(sizes) if sizes else width
    size = (sizes[1] if sizes else width // 3) // heads
    return {
        "x": "B S I",
        "weights": f"I {total}",
        "bias": f"{total}",
        "x_scale": "",
        "x_zero": "",
        "w_scale": f"/ {total}",
        "w_zero": f"/ {total}",
        "past": f"2 B num_heads P {size}",
        "mask_index": MASK.replace("T", str(keys)),
        "attention_bias": ADDED.replace("T", str(keys)),
    }


@shapes(MICROSOFT, "MultiHeadAttention")
def multi_head(given: Operands) -> Patterns:
    """Keys and values of four axes lie ready as heads."""
    query, key, past = (given.shapes.get(n, ()) for n in ("query", "key", "past_key"))
    ready, packed = len(key) == 4, len(query) == 5
    rows = key[2] if ready else key[1] if len(key) > 1 else query[1] if packed else 0
    keys = rows + (past[2] if len(past) == 4 else 0)
    patterns = {"query": "B S W / B S num_heads 3 H", "key": "B L W / B L num_heads 2 H"}
    patterns["value"] = "B L V"
    if ready:
        patterns |= {"key": "B num_heads L H", "value": "B num_heads L V"}
    if not packed and len(query) == 3 and not ready and len(given.shapes.get("value", ())) == 3:
        patterns["bias"] = str(2 * query[2] + given.shapes["value"][2])
    patterns |= {"past_key": "B num_heads P D", "past_value": "B num_heads P E"}
    mask = {"key_padding_mask": MASK.replace("T", str(keys))}
    return patterns | mask | {"attention_bias": ADDED.replace("T", str(keys))}


@shapes(MICROSOFT, "GroupQueryAttention")
def grouped(given: Operands) -> Patterns:
    query, heads, own = (
        given.shapes["query"],
        given.get("num_heads", 1),
        given.get("kv_num_heads", 1),
    )
    if len(query) != 3 or min(heads, own) < 1:
        return {"query": "B S W"}
    size = query[2] // (heads if "key" in given.shapes else heads + 2 * own)
    state = f"B kv_num_heads P {size}"
    return {
        "query": f"B S {size * (heads if 'key' in given.shapes else heads + 2 * own)}",
        "key": f"B S {own * size}",
        "value": f"B S {own * size}",
        "past_key": state,
        "past_value": state,
        "seqlens_k": "B / B 1",
        "total_sequence_length": "",
        "cos_cache": "L R",
        "sin_cache": "L R",
        "position_ids": "B S",
        "attention_bias": "1|B 1|num_heads S T",
        "head_sink": "num_heads",
        "q_norm_weight": f"{size}",
        "k_norm_weight": f"{size}",
    }


@shapes(MICROSOFT, "RotaryEmbedding")
def rotary(given: Operands) -> Patterns:
    x = given.shapes["x"]
    batch, length = (x[0], x[2 if len(x) == 4 else 1]) if len(x) > 2 else (1, 1)
    ids = f"1 / {batch} {length}"
    tables = {"cos_cache": "L R", "sin_cache": "L R"}
    heads, turned = given.get("num_heads", 0), given.get("rotary_embedding_dim", 0)
    size = x[3] if len(x) == 4 else x[2] // heads if len(x) == 3 and heads else 0
    if turned or size:
        half = (turned or size) // 2
        tables = {"cos_cache": f"L {half}", "sin_cache": f"L {half}"}
    return {"x": "B S W / B N S H", "position_ids": ids, **tables}


def _recurrent(given: Operands, gates: int, turned: bool = False) -> Patterns:
    """`turned`: weights are [directions, inputs, gates], and not the other way."""
    x, size = given.shapes["x"], given.get("hidden_size", 0)
    count = 2 if given.attributes.get("direction") == "bidirectional" else 1
    if len(x) != 3:
        return {"x": "S B I"}
    batch, first = (x[0], True) if given.get("layout", 0) else (x[1], False)
    rows = gates * size
    state = f"{batch} {count} {size}" if first else f"{count} {batch} {size}"
    return {
        "x": "S B I",
        "w": f"{count} I {rows}" if turned else f"{count} {rows} I",
        "r": f"{count} {size} {rows}" if turned else f"{count} {rows} {size}",
        "b": f"{count} {2 * rows}",
        "sequence_lens": f"{batch}",
        "initial_h": state,
        "initial_c": state,
        "p": f"{count} {3 * size}",
    }


@shapes(MICROSOFT, "DynamicQuantizeLSTM")
def quantized_lstm(given: Operands) -> Patterns:
    found = _recurrent(given, 4, turned=True)
    count = 2 if given.attributes.get("direction") == "bidirectional" else 1
    scales = f"{count} / {count} {4 * given.get('hidden_size', 0)}"
    return {**found, **dict.fromkeys(("w_scale", "w_zero", "r_scale", "r_zero"), scales)}


@shapes("", "LSTM")
def lstm(given: Operands) -> Patterns:
    return _recurrent(given, 4)


@shapes("", "GRU")
def gru(given: Operands) -> Patterns:
    return _recurrent(given, 3)


@shapes("", "RNN")
def rnn(given: Operands) -> Patterns:
    return _recurrent(given, 1)
