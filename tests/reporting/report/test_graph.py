"""The condensed graph of a program, and where its nodes lie."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import jq
from jq.planning.operands import contractions, op_name
from jq.reporting.report.graph import LETTERS, STEPS, Graph, graph_of, label, step
from jq.reporting.report.layout import lay_out

W = {name: np.ones((8, 8), np.float32) for name in "abc"}
X = np.ones((4, 8), np.float32)


def graph(fn, *inputs: np.ndarray) -> Graph:
    program = jq.trace(jq.Model(fn, W, inputs)).program
    return graph_of(program, {op_name(op) for op, _ in contractions(program)})


def edges(found: Graph) -> set[tuple[str, str]]:
    return {(found.nodes[a].name, found.nodes[b].name) for a, b in found.edges}


def test_functions_of_one_layer_are_part_of_its_edge() -> None:
    def fn(p, x):
        h = jax.nn.gelu(x @ p["a"] + 1)
        return jax.nn.softmax((h - h.mean(-1, keepdims=True)) @ p["b"])

    assert edges(graph(fn, X)) == {("arg0", "a"), ("a", "b"), ("b", "out0")}


def test_paths_that_meet_are_joined_once() -> None:
    def fn(p, x, mask):
        scores = x @ p["a"] + mask
        return x + jnp.where(mask > 0, scores, 0) @ p["b"]

    found = graph(fn, X, X)
    assert edges(found) == {
        *(("arg0", "a"), ("a", "add"), ("arg1", "add"), ("add", "b")),
        *(("b", "add"), ("arg0", "add"), ("add", "out0")),
    }
    assert [node.kind for node in found.nodes].count("join") == 2


def test_loops_and_branches_are_walked() -> None:
    def fn(p, x, flag):
        y = jax.lax.fori_loop(0, 3, lambda i, v: jnp.tanh(v @ p["a"]), x)
        return jax.lax.cond(flag[0] > 0, lambda v: v @ p["b"], lambda v: v @ p["c"], y)

    found = edges(graph(fn, X, np.ones(1, np.float32)))
    assert {("arg0", "a"), ("a", "b"), ("a", "c"), ("b", "branch"), ("c", "branch")} <= found


def test_what_leads_nowhere_is_left_out() -> None:
    found = graph(lambda p, x, y: (x @ p["a"], (x * y).sum() * 0 + 1)[0], X, X)
    assert edges(found) == {("arg0", "a"), ("a", "out0")}


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 24))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    drawn = {(min(p), max(p)) for p in draw(st.lists(pairs, max_size=40)) if p[0] != p[1]}
    widths = draw(st.lists(st.sampled_from([30.0, 190.0]), min_size=count, max_size=count))
    return widths, sorted(drawn)


@given(graphs())
def test_edges_go_down_and_nodes_do_not_touch(drawn) -> None:
    widths, pairs = drawn
    placed = lay_out(widths, pairs, 20.0)
    for (a, b), path in zip(pairs, placed.paths, strict=True):
        assert [row for _, row in path] == list(range(placed.rows[a], placed.rows[b] + 1))
        assert path[0][0] == placed.x[a] and path[-1][0] == placed.x[b]
    for row in set(placed.rows):
        those = sorted((placed.x[i], i) for i in range(len(widths)) if placed.rows[i] == row)
        for (left, i), (right, j) in itertools.pairwise(those):
            assert right - left >= (widths[i] + widths[j]) / 2 - 1e-6


def test_a_chain_is_straight_and_what_passes_it_goes_around() -> None:
    placed = lay_out([100.0] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], 20.0)
    assert np.ptp(placed.x) < 20
    around = placed.paths[3][1:-1]
    assert all(abs(x - placed.x[1]) >= 60 - 1e-6 for x, _ in around)


def test_colours_and_labels() -> None:
    assert [step(db) for db in (np.inf, 50, 49, 20, 10, 9.9, -np.inf, np.nan)] == [
        *(0, 0, 1, 3, 4, 5, 5, 5)
    ]
    assert len(STEPS) == 5
    assert label("encoder/layer0/mlp/up/kernel") == "encoder/layer0/mlp/up"
    assert len(label("encoder/layer0/attention/query/kernel")) == LETTERS
    assert label("kernel") == "kernel"
