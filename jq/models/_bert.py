"""The BERT encoder (Devlin et al. 2019) as pure functions over a nested dict of parameters."""

import ast
import hashlib
import math
import re
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

EPSILON = 1e-12  # of the layer norms
MASKED = -10000.0  # added to the score of a padding token, as in the original


def encode(
    params: Any, input_ids: jax.Array, attention_mask: jax.Array, *, heads: int
) -> jax.Array:
    """Token ids and mask i32[b, s] -> last hidden states f32[b, s, h]; every token has type 0."""
    with jax.named_scope("embeddings"):
        tables = params["embeddings"]
        x = tables["word"]["embedding"][input_ids]
        x = x + tables["position"]["embedding"][: input_ids.shape[1]]
        x = layer_norm(tables["norm"], x + tables["token_type"]["embedding"][0])
    bias = (1.0 - attention_mask[:, None, None, :].astype(jnp.float32)) * MASKED
    with jax.named_scope("encoder"):
        for i in range(len(params["encoder"])):
            with jax.named_scope(f"layer{i}"):
                x = layer(params["encoder"][f"layer{i}"], x, bias, heads)
    return x


def layer(params: Any, x: jax.Array, bias: jax.Array, heads: int) -> jax.Array:
    """One transformer block, norms after the residual sums; bias f32[b, 1, 1, s] of scores."""
    with jax.named_scope("attention"):
        x = layer_norm(
            params["attention"]["norm"], x + attention(params["attention"], x, bias, heads)
        )
    with jax.named_scope("mlp"):
        inner = gelu(dense(params["mlp"]["up"], x, "up"))
        return layer_norm(params["mlp"]["norm"], x + dense(params["mlp"]["down"], inner, "down"))


def attention(params: Any, x: jax.Array, bias: jax.Array, heads: int) -> jax.Array:
    """Multi-head self-attention with its output projection."""
    b, s, h = x.shape

    def split(name: str) -> jax.Array:
        return dense(params[name], x, name).reshape(b, s, heads, h // heads)

    query, key, value = split("query"), split("key"), split("value")
    with jax.named_scope("scores"):
        scores = jnp.einsum("bqnd,bknd->bnqk", query, key) / math.sqrt(h // heads)
    weights = jax.nn.softmax(scores + bias, axis=-1)
    with jax.named_scope("context"):
        context = jnp.einsum("bnqk,bknd->bqnd", weights, value).reshape(b, s, h)
    return dense(params["output"], context, "output")


def dense(params: Any, x: jax.Array, name: str) -> jax.Array:
    with jax.named_scope(name):
        y: jax.Array = x @ params["kernel"] + params["bias"]
    return y


def gelu(x: jax.Array) -> jax.Array:
    """x * Phi(x), with the error function itself, not its tanh approximation."""
    return 0.5 * x * (1.0 + jax.lax.erf(x / math.sqrt(2.0)))


def layer_norm(params: Any, x: jax.Array) -> jax.Array:
    with jax.named_scope("norm"):
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + EPSILON)
        y: jax.Array = normal * params["scale"] + params["bias"]
    return y


# Parts of a layer, and their names in a checkpoint.
_THEIRS = {
    **{f"attention/{name}": f"attention.self.{name}" for name in ("query", "key", "value")},
    "attention/output": "attention.output.dense",
    "attention/norm": "attention.output.LayerNorm",
    "mlp/up": "intermediate.dense",
    "mlp/down": "output.dense",
    "mlp/norm": "output.LayerNorm",
}


def from_checkpoint(tensors: Mapping[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """Flat parameters from a Hugging Face BERT checkpoint; linear weights become [in, out]."""
    flat: dict[str, np.ndarray] = {}
    for kind in ("word", "position", "token_type"):
        name = f"embeddings.{kind}_embeddings.weight"
        flat[f"embeddings/{kind}/embedding"] = np.asarray(tensors[name], np.float32)
    pairs = [("embeddings/norm", "embeddings.LayerNorm")]
    for i in range(layers):
        pairs += [(f"encoder/layer{i}/{a}", f"encoder.layer.{i}.{b}") for a, b in _THEIRS.items()]
    for ours, theirs in pairs:
        weight = np.asarray(tensors[f"{theirs}.weight"], np.float32)
        scales = ours.endswith("/norm")
        flat[f"{ours}/scale" if scales else f"{ours}/kernel"] = np.ascontiguousarray(weight.T)
        flat[f"{ours}/bias"] = np.asarray(tensors[f"{theirs}.bias"], np.float32)
    return flat


# English sentences that every machine has: docstrings of Python's standard library.
# Present in every Python from 3.11 on as single files, and read, never imported.
_MODULES = Path(__file__).with_name("library_modules.txt")
_HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)  # what a statement can stand in
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@cache
def sentences() -> tuple[str, ...]:
    """Different texts of 4 to 120 words: one sentence, one paragraph or all prose, a third each;
    no two begin with the same sentence. The same for the same release of Python; sorted by a hash,
    so that any run of them mixes modules and lengths."""
    first: dict[str, str] = {}
    for doc in _docstrings():
        prose = [" ".join(p.split()) for p in re.split(r"\n\s*\n", doc) if ">>>" not in p]
        if not prose or not prose[0][:1].isalpha():
            continue
        opening = _SENTENCE.split(prose[0])[0]
        text = (opening, prose[0], " ".join(prose))[len(first) % 3]
        if len(opening.split()) >= 4:
            first.setdefault(opening.lower(), " ".join(text.split()[:120]))
    unique = sorted(set(first.values()))
    return tuple(sorted(unique, key=lambda text: hashlib.sha256(text.encode()).digest()))


def _docstrings() -> Iterator[str]:
    """Docstrings in source order; a module that this Python lacks gives none."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in _MODULES.read_text(encoding="utf-8").split():
        path = library / f"{name}.py"
        if not path.is_file():
            continue
        for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                doc = ast.get_docstring(node)
                if doc:
                    yield doc


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """`ast.walk` without expressions, which hold no docstring and are most of a tree."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # it grows
        yield node
        for name in node._fields:
            if isinstance(inner := getattr(node, name, None), list):
                nodes += [n for n in inner if isinstance(n, _HOLDERS)]
