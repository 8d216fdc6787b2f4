"""Each thing that we rely on in JAX beyond its documented functions, by itself."""

from __future__ import annotations

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from jax.sharding import PartitionSpec

from jq.base import from_jax
from jq.frontends.model import Model
from jq.frontends.tracing import trace
from jq.ir import ir, parse_module, walk

X = jnp.ones((4, 4))


def layer(x: jax.Array) -> jax.Array:
    with jax.named_scope("outer"), jax.named_scope("layer"):
        return jnp.sin(x)


@jax.custom_jvp
def with_jvp(x: jax.Array) -> jax.Array:
    return layer(x)


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), tangents[0]))


@jax.custom_vjp
def with_vjp(x: jax.Array) -> jax.Array:
    return layer(x)


with_vjp.defvjp(lambda x: (layer(x), None), lambda _, grad: (grad,))


def over_one_device(x: jax.Array) -> jax.Array:
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("i")
    return jax.shard_map(layer, mesh=mesh, in_specs=spec, out_specs=spec)(x)


def test_the_threads_of_lowering() -> None:
    """A forked child gives JAX a new pool."""
    from jax._src.interpreters import mlir

    assert isinstance(mlir.global_thread_pool, ir.ThreadPool)


# What a transformation adds to a path is no part of a name; the names of functions under `jit` are.
CASES: dict[str, tuple[Any, str]] = {
    "plain": (layer, ""),
    "jit": (lambda x: jax.jit(layer)(x), "layer/"),
    "checkpoint": (jax.checkpoint(layer), ""),
    "vmap": (jax.vmap(layer), ""),
    "vmap of vmap": (jax.vmap(jax.vmap(layer)), ""),
    "vmap of jit": (lambda x: jax.vmap(jax.jit(layer))(x), "layer/"),
    "jvp": (lambda x: jax.jvp(layer, (x,), (x,))[0], ""),
    "value and gradient": (jax.value_and_grad(lambda x: layer(x).sum()), ""),
    "recomputed": (jax.value_and_grad(lambda x: jax.checkpoint(layer)(x).sum()), ""),
    "custom_jvp": (with_jvp, ""),
    "custom_vjp": (with_vjp, ""),
    "scan": (lambda x: lax.scan(lambda c, r: (layer(c + r), r), x, x), ""),
    "scan of checkpoint": (
        lambda x: lax.scan(jax.checkpoint(lambda c, r: (layer(c), r)), x, x),
        "",
    ),
    "scan unrolled": (lambda x: lax.scan(lambda c, r: (layer(c), r), x, x, unroll=2), ""),
    "scan of scan": (
        lambda x: lax.scan(lambda c, r: lax.scan(lambda d, s: (layer(d), s), c, x), x, x),
        "",
    ),
    "map": (lambda x: lax.map(layer, x), ""),
    "map of batches": (lambda x: lax.map(layer, x, batch_size=2), ""),
    "fori": (lambda x: lax.fori_loop(0, 3, lambda i, c: layer(c), x), ""),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 3, layer, x), ""),
    "shard_map": (over_one_device, ""),
    "exported": (lambda x: jax.export.export(jax.jit(layer))(x).call(x), "layer/"),
    "evaluated": (lambda x: from_jax.as_function(jax.make_jaxpr(layer)(x))(x)[0], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_scopes_of_jax_are_no_part_of_a_name(case: str) -> None:
    fn, prefix = CASES[case]
    program = trace(Model(lambda params, x: fn(x), {}, (X,), name="m"))
    found = {
        op.attributes["jq.scope"].value
        for op in program.walk()
        if op.operation.name == "stablehlo.sine"
    }
    assert found == {f"{prefix}outer/layer/sin"}


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("jit(f)/while/body/eval_jaxpr/jit(block)/attn/dot_general", "block/attn/dot_general"),
        ("jit(f)/vmap(jvp(a/b))/c/mul", "a/b/c/mul"),
        ("jit(f)/vmap(a/jit(g))/c", "a/jit(g)/c"),
        ("jit(f)/vmap()/mul", "mul"),
        ("jit(f)/transpose(jvp(a))/checkpoint/rematted_computation/cos", "a/cos"),
        ("jit(f)/shard_map/a/b", "a/b"),
        ("jit(f)", ""),
        ("", ""),
        ("a//b/", "a/b"),
        ("layer(1/dot", "layer(1/dot"),
        ("layer)1/dot", "layer)1/dot"),
    ],
)
def test_paths(path: str, clean: str) -> None:
    assert from_jax.clean_scope(path) == clean


def test_paths_of_leaves() -> None:
    tree = {"a": [X, (X, {"b/c": X})], "d": X}
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    assert [from_jax.leaf_name(p) for p in paths] == ["a/0", "a/1/0", "a/1/1/b/c", "d"]
    assert [from_jax.position(key) for key in paths[1]] == [None, 1, 0]
    assert from_jax.is_value(jax.tree_util.GetAttrKey("value"))
    assert not from_jax.is_value(jax.tree_util.DictKey("value"))


def test_a_context_reads_what_jax_lowers() -> None:
    lowered = jax.jit(lambda x: lax.top_k(jax.scipy.special.erf(x), 2)).lower(X)
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer := io.BytesIO())
    with from_jax.new_context():
        names = {op.operation.name for op in walk(ir.Module.parse(buffer.getvalue()).body)}
    assert {"func.func", "chlo.erf", "chlo.top_k"} <= names


def test_locations_have_names() -> None:
    lowered = jax.jit(layer).lower(X)
    module = parse_module(lowered.as_text(debug_info=True))
    scopes = {from_jax.scope(op.location) for op in walk(module.body)}
    assert "jit(layer)/outer/layer/sin" in scopes


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"xla_allow_excess_precision": "False", "xla_cpu_enable_fast_min_max": "False"},
        {"xla_disable_hlo_passes": "algsimp", "xla_backend_optimization_level": "0"},
    ],
)
def test_options_of_xla(options: dict[str, str]) -> None:
    lowered = jax.jit(jnp.sin).lower(X)
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer := io.BytesIO())
    device = jax.local_devices(backend="cpu")[0]
    executable = from_jax.load_by_xla(buffer.getvalue(), device, options)
    (found,) = executable.execute_sharded([X]).disassemble_into_single_device_arrays()
    assert np.allclose(found[0], np.sin(np.ones((4, 4))), atol=1e-6)


def test_an_option_that_xla_does_not_have_is_refused() -> None:
    lowered = jax.jit(jnp.sin).lower(X)
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer := io.BytesIO())
    device = jax.local_devices(backend="cpu")[0]
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="xla_no_such_option"):
        from_jax.load_by_xla(buffer.getvalue(), device, {"xla_no_such_option": "1"})


def test_calling_conventions() -> None:
    oldest, newest = from_jax.calling_conventions()
    written = jax.export.export(jax.jit(layer))(X).calling_convention_version
    assert oldest <= written <= newest


def test_checks_are_dropped() -> None:
    def checked(x: jax.Array) -> jax.Array:
        checkify.check(x.sum() > 0, "negative")
        return x + 1

    assert (from_jax.without_errors(checked)(-X) == 0).all()


def test_clients_that_have_started() -> None:
    assert jax.devices()[0].client in from_jax.clients()


def test_shapes_follow_from_those_of_the_arguments() -> None:
    text = """func.func public @main(%x: tensor<4xf32>) -> tensor<?xf32> {
      %y = stablehlo.convert %x : (tensor<4xf32>) -> tensor<?xf32>
      return %y : tensor<?xf32>
    }"""
    file = io.BytesIO()
    parse_module(text).operation.write_bytecode(file)
    assert "tensor<?xf32>" not in str(parse_module(from_jax.with_shapes(file.getvalue())))
