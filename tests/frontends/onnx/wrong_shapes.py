"""Calls of operators with operands of drawn, mostly wrong shapes, by `jq.frontends.onnx` and ONNX
Runtime.

A call that ONNX Runtime refuses has to be refused with the node's name and shapes, or be one that
`LENIENT` names with a reason. One that both compute has one result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper

from jq.base.errors import UserError
from jq.frontends.onnx.inference import schema_of
from jq.frontends.onnx.read import from_proto
from jq.frontends.onnx.registry import OPERATORS
from jq.frontends.onnx.values import plain
from jq.frontends.onnx.walk import Walk, require_operators
from tests.frontends.onnx import test_microsoft as floats
from tests.frontends.onnx.against_ort import OPSETS, by_onnxruntime
from tests.frontends.onnx.forms import FORMS, Form
from tests.frontends.onnx.node_cases import array_of, cases, excluded

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Sample:
    """A sound graph: `given` are its inputs, `fixed` its initializers."""

    nodes: list[onnx.NodeProto]
    given: Arrays
    fixed: Arrays
    outputs: list[str]

    def model(self, name: str, array: np.ndarray) -> tuple[onnx.ModelProto, Arrays]:
        """With another array in the place of one, and the inputs then."""
        given, fixed = (
            {k: array if k == name else v for k, v in a.items()} for a in (self.given, self.fixed)
        )
        ends = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in given.items()
        ]
        made = [helper.make_value_info(y, onnx.TypeProto()) for y in self.outputs]
        tensors = [numpy_helper.from_array(v, k) for k, v in fixed.items()]
        graph = helper.make_graph(self.nodes, "wrong", ends, made, tensors)
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=10), given


@cache
def samples() -> dict[str, Sample]:
    found = {}
    for name, function in FORMS.items():
        form = Form(np.random.default_rng(0))
        made = function(form)
        outputs = made if isinstance(made, list) else [made]
        found[name] = Sample(form.nodes, form.inputs, form.arrays, outputs)
    for name, (op, inputs, attributes) in _floats().items():
        given = {k: v for k, v in inputs.items() if v is not None}
        names = [k if k in given else "" for k in inputs]
        domain, rest = attributes.get("domain", "com.microsoft"), dict(attributes)
        fixed = rest.pop("constants", ())
        count = rest.pop("outputs", 1)
        rest.pop("domain", None)
        outputs = [f"y{i}" for i in range(count)]
        node = helper.make_node(op, names, outputs, domain=domain, **rest)
        found[f"{op} {name}"] = Sample([node], *_parts(given, fixed), outputs)
    return found | _of_the_standard({node.op_type for one in found.values() for node in one.nodes})


def _of_the_standard(others: set[str]) -> dict[str, Sample]:
    """A case of the onnx package for every operator that `others` do not have."""
    found: dict[str, Sample] = {}
    for name, case in cases().items():
        node = case.model.graph.node[0]
        op = OPERATORS.get((node.domain, node.op_type))
        old = schema_of(node.op_type, node.domain, OPSETS[0].version)
        given = [array_of(v) for v in case.data_sets[0][0]]
        plain = all(isinstance(x, np.ndarray) and x.dtype.kind in "fiub" for x in given)
        if not plain or op is None or old is None or node.op_type in others or excluded(name):
            continue
        if len(case.model.graph.node) > 1 or sum(x.size for x in given) > 5000:
            continue
        if node.op_type in ELSEWHERE or "_expanded" in name:
            continue
        others.add(node.op_type)
        known = [i for i, operand in enumerate(op.operands) if operand.known]
        known = list(range(len(given))) if node.op_type in FOLDED else known
        arrays = dict(zip(filter(None, node.input), given, strict=True))
        fixed = {node.input[i] for i in known if i < len(node.input)}
        outputs = [y.name for y in case.model.graph.output]
        found[f"{node.op_type} {name}"] = Sample([node], *_parts(arrays, fixed), outputs)
    return found


FOLDED = {"ConstantOfShape"}  # all of what it reads is known
ELSEWHERE = {
    "SplitToSequence": "its result is no array",
    "Loop": "without numbers of trips and conditions it has no size",
    "Range": "the package's first case is of float16, which ONNX Runtime has not",
    "Scan": "its body declares the shapes, which nobody needs",
    "Scatter": "not in this opset",
    "Upsample": "not in this opset",
    "BitShift": "ONNX Runtime has it for unsigned integers",
}


def _parts(arrays: Arrays, fixed: Collection[str]) -> tuple[Arrays, Arrays]:
    """Inputs, and initializers."""
    given, held = (
        {k: v for k, v in arrays.items() if (k in fixed) == part} for part in (False, True)
    )
    return given, held


def _floats() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name -> operator, inputs and attributes of those that compute in float."""
    f = floats
    found = dict(f.PLAIN)
    rng = np.random.default_rng(7)
    ids = rng.integers(0, 9, (f.B, f.S))
    word = {"ids": ids.astype(np.int32), "segments": None, "words": f.real(11, f.W)}
    word |= {"places": f.real(9, f.W), "kinds": None, "g": f.real(f.W), "b": f.real(f.W)}
    found["words"] = ("EmbedLayerNormalization", word, {"outputs": 2})
    both = {"segments": (ids % 2).astype(np.int32), "kinds": f.real(2, f.W)}
    both |= {"mask": f.MASKS["keys"], "at": ids.astype(np.int32)}
    found["kinds"] = ("EmbedLayerNormalization", word | both, {"outputs": 2})
    x = {"x": f.real(f.B, f.S, 12), "w": f.real(12, 3 * f.W), "b": f.real(3 * f.W)}
    for name, mask in f.MASKS.items():
        found[name] = ("Attention", x | {"mask": mask}, {"num_heads": f.N})
    state = {"past": f.real(2, f.B, f.N, 3, f.H)}
    found["state"] = ("Attention", x | {"mask": None} | state, {"num_heads": f.N, "outputs": 2})
    added = {"past": None, "bias": f.real(1, f.N, f.S, f.S)}
    found["added"] = ("Attention", x | {"mask": None} | added, {"num_heads": f.N})
    for name, inputs in f.HEADS.items():
        found[name] = ("MultiHeadAttention", inputs, {"num_heads": f.N})
    turned = {"x": f.real(f.B, f.S, f.W), "ids": ids, **f.angles(9, f.H // 2)}
    found["rows"] = ("RotaryEmbedding", turned, {})
    given = {"num_heads": f.N, "kv_num_heads": 2, "outputs": 3}
    for name in ("prompt", "turned"):
        for length, past, last in f.FORMS[:2]:
            inputs = f.group_query(length, past, length + past, last, name == "turned")
            more = given | f.GROUPS[name] | {"constants": ("total",)}
            found[f"{name} {past}"] = ("GroupQueryAttention", inputs, more)
    return found


def reshaped(rng: np.random.Generator, x: np.ndarray) -> np.ndarray | None:
    """Some of the numbers of `x` in another shape; None where that is the same."""
    shape = list(x.shape)
    way = rng.integers(7)
    if way == 0:  # one more or less, half or twice as many
        if not shape:
            return None
        axis = int(rng.integers(len(shape)))
        n = shape[axis]
        shape[axis] = int(rng.choice([n + 1, max(n - 1, 1), 2 * n, max(n // 2, 1)]))
    elif way == 1:  # another axis, before or after
        shape.insert(int(rng.choice([0, len(shape)])), int(rng.choice([1, 2])))
    elif way == 2:
        shape = shape[1:] if rng.integers(2) else shape[:-1]
    elif way == 3:
        shape = [x.size]
    elif way == 4:
        shape = [shape[i] for i in rng.permutation(len(shape))]
    elif way == 5:  # a factor goes to another axis
        if len(shape) < 2:
            return None
        i, j = (int(a) for a in rng.permutation(len(shape))[:2])
        factor = next((p for p in (2, 3, 5) if shape[i] % p == 0), shape[i])
        shape[i], shape[j] = shape[i] // factor, shape[j] * factor
    else:
        shape = []
    if tuple(shape) == x.shape:
        return None
    return np.resize(x.reshape(-1), shape).astype(x.dtype)


def drawn(seed: int, each: int) -> Iterator[tuple[str, Sample, str, np.ndarray]]:
    """For each operand of each sample `each` shapes: sample's name, sample, operand, array."""
    rng = np.random.default_rng(seed)
    for name, sample in samples().items():
        for key, array in (sample.given | sample.fixed).items():
            for _ in range(each):
                other = reshaped(rng, array)
                if other is not None:
                    yield name, sample, key, other


# What ONNX Runtime says of a call that is computed nevertheless -> why.
LENIENT = {
    "invalid index found": "an index is no shape",
    "position_ids (base )?value": "positions that an input gives take the nearest row",
    "must be a scalar|Scale and Zero-point": "a vector of one element is no other number",
    "Invalid input shape|[Ii]nvalid.*(output|kernel)": "a window that has no place gives nothing",
    "ComputeOutputSize": "a window that has no place gives nothing",
    "axes_tensor|axes tensor": "axes are numbers in any order",
    "invalid indice found|out of data bounds|Out of range value": "an index is no shape",
    r"NumDimensions\(\) == 4|layout == 1": "ONNX Runtime has no other",
    "output_shape is inconsistent": "what is cut away may be less than nothing",
}


def verdict(sample: Sample, key: str, array: np.ndarray) -> str:
    """`same`, `refused`, `lenient`, or what is wrong, in words.

    ONNX Runtime, which may end the process, is asked about what is computed only.
    """
    model, given = sample.model(key, array)
    ours = computed(model, given)
    if isinstance(ours, UserError):
        shown = ours.op and re.search(r"\[[\d, ]*\]", ours.message)
        return "refused" if shown else f"no node or no shape in: {ours}"
    if isinstance(ours, Exception):
        return f"internal: {type(ours).__name__}: {ours}"
    try:
        theirs = by_onnxruntime(model.SerializeToString(), *given.values())
    except Exception as error:  # of a class that its bindings make
        text = str(error).partition("\n")[0]
        why = next((w for pattern, w in LENIENT.items() if re.search(pattern, text)), None)
        return "lenient" if why else f"accepted, refused by ONNX Runtime: {text}"
    for y, z in zip(ours, theirs, strict=True):
        if y.shape != z.shape:
            return f"shape {y.shape} for {z.shape}"
        wide = [v.astype(np.float64) for v in (y, z)]
        if not np.allclose(*wide, rtol=1e-4, atol=1e-4 * np.abs(wide[1]).max(initial=1)):
            return "other numbers"
    return "same"


def computed(model: onnx.ModelProto, given: Arrays) -> Any:
    """Arrays of the results, or the error."""
    try:
        file = from_proto(model, Path("wrong.onnx"))
        require_operators(file)
        with jax.enable_x64(True):
            values = [jnp.asarray(given[n]) for n in file.graph.inputs]
            return [np.asarray(plain(v)) for v in Walk(file).run(file.graph, values)]
    except Exception as error:  # is judged
        return error
