"""Docstrings are sentences of their own, as the site and editors show them."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import jq
from tests.docs.blocks import ROOT
from tests.support.decoders import write_gguf

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
# Words in front of the thing; "From" stands at the head of modules and of nothing else.
MIDDLE = "Also And As Before But By For From If In Likewise Not Of On Only Or So That To With"
QUESTIONS = {"What", "Whether", "How", "Where", "Which", "Why", "Who", "When", "Whose"}


def test_no_docstring_begins_in_the_middle_of_a_sentence() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {text}"
        for path, number, text in docstrings()
        if text.partition(" ")[0] in MIDDLE.split()
        and not (number == 1 and text.startswith("From "))
        and (path.is_relative_to(ROOT / "jq") or text.startswith(("Of ", "And ", "Or ", "But ")))
    ]
    assert not found


def test_docstrings_begin_with_the_thing() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {text}"
        for path, number, text in docstrings()
        if text.partition(" ")[0].strip(",") in QUESTIONS
    ]
    assert not found, "name the thing instead: " + "\n".join(found)


@cache
def docstrings() -> list[tuple[Path, int, str]]:
    """The first line of every docstring, those of attributes included, and its place."""
    return [
        (path, statement.lineno, inspect.cleandoc(statement.value.value).partition("\n")[0])
        for folder in ("jq", "scripts", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for statement in (node.body if isinstance(node, DOCUMENTED) else ())
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement.value.value, str)
    ]


ELSEWHERE = re.compile(
    r"\nThe arguments that are not listed(, and the errors,)? are those of `jq\.(\w+)`\.\n"
)


def test_public_functions_say_what_they_take_and_refuse() -> None:
    refuses_nothing = {"encoding"}
    lacking = []
    for name in jq.__all__:
        if not inspect.isfunction(function := getattr(jq, name)):
            continue
        text = inspect.getdoc(function) or ""
        said = set(re.findall(r"^    (\w+): ", text, re.MULTILINE))
        if elsewhere := ELSEWHERE.search(text):
            said.update(inspect.signature(getattr(jq, elsewhere[2])).parameters)
        errors = "\nRaises:\n    " in text or (elsewhere and elsewhere[1])
        lacking += [f"{name}: {p}" for p in inspect.signature(function).parameters if p not in said]
        if name not in refuses_nothing and not errors:
            lacking.append(f"{name}: Raises")
    assert not lacking


EXAMPLE = re.compile(r"^Example:\n    ```python\n(.*?)\n    ```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names that examples may use: a small model, its artifact, and files of others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    rng = np.random.default_rng(0)
    params = {"head": {"kernel": rng.standard_normal((16, 8), np.float32)}}
    data = [(rng.standard_normal((4, 16), np.float32),) for _ in range(2)]

    def fn(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["head"]["kernel"])

    model = jq.Model(fn, params, data[0], calibration=data, evaluation=data)
    compiled = jq.compile(model, "int8-static")
    compiled.save("out/")
    return {"jq": jq, "jax": jax, "jnp": jnp, "np": np, "model": model, "compiled": compiled}


def others_files() -> None:
    """A GGUF file and an ONNX file."""
    q8 = gguf.GGMLQuantizationType.Q8_0
    write_gguf("llama", Path("model.gguf"), lambda _, a: q8 if a.ndim > 1 else None)
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 4])
        for name in "xy"
    )
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph), "model.onnx")


@pytest.mark.usefixtures("quick_xla")
def test_examples_of_the_interface_run(names: dict[str, Any]) -> None:
    others_files()
    for name in jq.__all__:
        found = EXAMPLE.findall(inspect.getdoc(getattr(jq, name)) or "")
        assert found, f"jq.{name} has no example"
        for text in found:
            given = dict(names)
            exec(compile(inspect.cleandoc(text), f"jq.{name}", "exec"), given)
            shutil.rmtree("with-integer", ignore_errors=True)
