"""Code outside of StableHLO that a model calls, named as the user wrote it.

custom_call @lapack_sgeqrf_ffi, in the scope `qr/geqrf`  ->  jnp.linalg.qr"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.lax import linalg

from jq.base.errors import UserError
from jq.base.from_jax import ONE_DEVICE, clean_scope, scope, without_errors
from jq.ir import Op, editing, ir, replace, stablehlo, string_attr, walk
from jq.ir.decisions import ROUNDED

Result = TypeVar("Result")
Program = Callable[..., Any]

_LAPACK = re.compile(r"lapack_([a-z0-9]+?)(?:_ffi)?$")
# StableHLO's own that no target has.
_LINEAR_ALGEBRA = ("stablehlo.triangular_solve", "stablehlo.cholesky")
_DEVICES = (
    *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"),
    *("infeed", "outfeed", "partition_id", "recv", "reduce_scatter", "replica_id", "send"),
)
_ELSEWHERE = (
    "compute it outside of the model and give its result as an input or a weight, or keep it in a"
    " float function of its own, that JAX runs"
)
_CHECKS = (
    "checkify.check is left out: a compiled program raises no errors (wrap the function with"
    " checkify.checkify to get the error as an output)"
)
_ANNOTATIONS = ("Sharding", "annotate_device_placement", "LayoutConstraint")
_DEBUG = re.compile(r"\bdebug_(print|callback):?$")
_MODULES = (
    ("jnp.linalg", jnp.linalg),
    ("jax.scipy.linalg", jax.scipy.linalg),
    ("jax.lax.linalg", linalg),
)


def drop_annotations(module: ir.Module, block: ir.Block) -> list[str]:
    """Removes what JAX says to devices and compilers, and what is printed while debugging, which
    comes back as notes; a custom call that computes is refused."""
    notes: dict[str, None] = {}  # in order, each once
    _drop_inside(module, block, notes)
    _drop_meshes(module)
    return list(notes)


def _drop_inside(module: ir.Module, block: ir.Block, notes: dict[str, None]) -> None:
    """Block by block, so that what lies in an op that is erased is never looked at."""
    for op in list(block.operations):
        values = alone(module, op)
        if values is None:
            values = _of_annotation(op, notes)
        if values is None:
            for inner in [b for region in op.regions for b in region.blocks]:
                _drop_inside(module, inner, notes)
        else:
            replace(op, values)


def _of_annotation(op: Op, notes: dict[str, None]) -> list[ir.Value] | None:
    """Values in the place of an op's results, if it computes nothing; None for others."""
    name = op.operation.name
    refuse_op(name, scope(op.location))
    said = "mhlo.frontend_attributes"
    if op.operands and said in op.attributes and ROUNDED in op.attributes[said]:
        op.attributes[ROUNDED] = op.attributes[said][ROUNDED]
    for key in [k for k in op.attributes if k.startswith(("mhlo.", "sdy.", "jax."))]:
        del op.attributes[key]
    if name == "stablehlo.custom_call":
        target = string_attr(op, "call_target_name") or ""
        if note := left_out(target, op):
            notes[note] = None
            return []
        if target not in _ANNOTATIONS:
            raise refusal(target, scope(op.location))
    elif name not in ("sdy.sharding_constraint", "stablehlo.optimization_barrier"):
        return None
    return list(op.operands)


def _drop_meshes(module: ir.Module) -> None:
    """Removes meshes of devices, and what arguments and results say about them (a type of JAX that
    says how an array is sharded becomes such an attribute)."""
    for op in list(module.body.operations):
        if op.operation.name == "sdy.mesh":
            op.operation.erase()
            continue
        for key in [k for k in ("arg_attrs", "res_attrs") if k in op.attributes]:
            each = [{named.name: named.attr for named in one} for one in op.attributes[key]]
            plain = [{k: v for k, v in one.items() if not k.startswith("sdy.")} for one in each]
            with editing():
                op.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in plain])


def refusal(target: str, path: str) -> UserError:
    """The error for a call of `target` under `path`, as JAX writes it (`jit(f)/jit(qr)/geqrf`)."""
    if routine := _LAPACK.match(target):
        what = f"{written(path) or 'linear algebra'} is done by LAPACK ({routine[1]}), which only"
        what += " JAX on a CPU calls: no target has it"
        hint = _ELSEWHERE
    elif "callback" in target:
        what = "the model calls back into Python, which no compiled program can"
        hint = "take the callback (pure_callback, io_callback) out of the model"
    else:
        what = f"the model calls {target}, code outside of StableHLO that no target has"
        hint = "rewrite that part of the model with ordinary array operations"
    return UserError(what, op=clean_scope(path) or None, hint=hint)


def left_out(target: str, op: Op) -> str | None:
    """A sentence on a `jax.debug.print` or `.callback`, which no op reads; None for others."""
    path = clean_scope(scope(op.location))
    if len(op.results) or "callback" not in target or not _DEBUG.search(path):
        return None
    return f"{path.rstrip(':')} is left out: a compiled program cannot call Python"


def without_checks(
    lower: Callable[[Program, Sequence[Any]], Result], program: Program, specs: Sequence[Any]
) -> tuple[Result, tuple[str, ...]]:
    """`lower(program, specs)`, with notes. Where JAX refuses checks (`checkify.check`) that nobody
    functionalized, a second time without them: nothing depends on them."""
    try:
        return lower(program, specs), ()
    except ValueError as error:
        if "checkify" not in str(error):
            raise
    return lower(without_errors(program), specs), (_CHECKS,)


def refuse_op(name: str, path: str) -> None:
    """Raises a `UserError` for an op of StableHLO that no target has."""
    scope = clean_scope(path) or None
    if name in _LINEAR_ALGEBRA:
        written_as = written(path) or f"jax.lax.linalg.{name.partition('.')[2]}"
        what = f"{written_as} has no form that a target can run"
        raise UserError(what, op=scope, hint=_ELSEWHERE)
    if name.partition(".")[2] in _DEVICES:
        what = f"{name} speaks to other devices, and a compiled program runs on one"
        raise UserError(what, op=scope, hint=ONE_DEVICE)


def alone(module: ir.Module, op: Op) -> list[ir.Value] | None:
    """Results of an op that speaks to other devices where there are none: its operands (`psum` of
    one device), zeros where nobody sends (`ppermute`), the number 0. None for others."""
    name = op.operation.name.partition(".")[2]
    if name not in _DEVICES:
        return None
    operands, attributes = list(op.operation.operands), op.operation.attributes
    if name in ("partition_id", "replica_id"):
        return [_zeros(op)] if devices(module) == 1 else None
    if "source_target_pairs" in attributes:
        pairs = np.asarray(attributes["source_target_pairs"])
        return None if pairs.any() else operands if pairs.size else [_zeros(op)]
    groups = attributes.get("replica_groups", None)
    one = isinstance(groups, ir.DenseElementsAttr) and np.asarray(groups).size == 1
    if groups is None or not (one or devices(module) == 1):
        return None
    return operands[: len(op.operation.results)]


def devices(module: ir.Module) -> int:
    """The number of devices that a module is for; 1 where it does not say so. An abstract mesh has
    devices that the module does not count."""
    said = module.operation.attributes
    counts = [k for k in ("mhlo.num_partitions", "mhlo.num_replicas") if k in said]
    meshes = [op for op in module.body.operations if op.operation.name == "sdy.mesh"]
    sizes = [
        [ir.IntegerAttr(said[k]).value for k in counts],
        *([int(n) for n in re.findall(r'"=(\d+)', str(op.attributes["mesh"]))] for op in meshes),
    ]
    return max(int(np.prod(each, dtype=np.int64)) for each in sizes)


def refuse_devices(module: ir.Module) -> None:
    """Raises a `UserError` for a `shard_map` over several devices."""
    if (count := devices(module)) == 1:
        return
    for function in module.body.operations:
        for region in function.operation.regions:
            for op in (op for block in region.blocks for op in walk(block)):
                if op.operation.name == "sdy.manual_computation":
                    raise UserError(
                        f"shard_map shares the work of the model among {count} devices, and a"
                        " compiled program runs on one",
                        hint=ONE_DEVICE,
                    )


def _zeros(op: Op) -> ir.Value:
    kind = op.operation.results[0].type
    element = ir.RankedTensorType(kind).element_type
    with editing(), ir.InsertionPoint(op.operation), op.location:
        of = ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr
        return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, of.get(element, 0)))


def written(path: str) -> str | None:
    """The public function of linear algebra in a path, the outermost: `jnp.linalg.qr`."""
    for name in re.findall(r"jit\((\w+)\)", path):
        for prefix, module in _MODULES:
            if hasattr(module, name.lstrip("_")):
                return f"{prefix}.{name.lstrip('_')}"
    primitive = path.rpartition("/")[2]
    primitive = {"geqrf": "qr", "geqp3": "qr"}.get(primitive, primitive)  # parts of a function
    return f"jax.lax.linalg.{primitive}" if hasattr(linalg, primitive) else None
