"""Measures of a whole evaluation set, for models that have labels or embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from jq.errors import UserError


def top1(scores: np.ndarray) -> np.ndarray:
    """The class of each sample: scores [n, classes] -> i64[n]; integer labels [n] pass through."""
    return np.asarray(scores, np.float64).argmax(-1) if scores.ndim > 1 else scores


def accuracy(scores: np.ndarray, labels: Any) -> float:
    """Share of samples whose top-1 class is the label."""
    labels = np.asarray(labels)
    found = top1(np.asarray(scores))
    if found.shape != labels.shape:
        raise UserError(
            f"{labels.shape} labels for {found.shape} predictions",
            hint="give one label per sample of the evaluation set",
        )
    return float(np.mean(found == labels))


def top1_agreement(reference: np.ndarray, quantized: np.ndarray) -> float:
    """Share of samples where both models choose the same class."""
    return float(np.mean(top1(reference) == top1(quantized)))


def retrieval_agreement(reference: np.ndarray, quantized: np.ndarray) -> float:
    """Share of embeddings [n, d] whose nearest other embedding (by cosine) is the same one."""
    if len(reference) < 3:
        raise UserError("retrieval agreement needs at least 3 embeddings")
    return float(np.mean(_nearest(reference) == _nearest(quantized)))


def _nearest(embeddings: np.ndarray) -> np.ndarray:
    x = np.asarray(embeddings, np.float64).reshape(len(embeddings), -1)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    similarity = x @ x.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(1)
