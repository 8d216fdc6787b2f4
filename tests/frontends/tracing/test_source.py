"""Names that stand for a model, and the line that a mistake ends with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.frontends.tracing import load_model

SOURCE = """
import jq.frontends.model
import numpy as np
from sibling import SIZE

def build():
    return model

def wrong():
    return 3

def broken():
    return 1 / 0

class nested:
    model = jq.frontends.model.Model(lambda p, x: x, {}, (np.zeros(3),))

model = jq.frontends.model.Model(lambda p, x: x + p, np.zeros(SIZE), (np.zeros(SIZE),))
text = "hello"
"""


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "sibling.py").write_text("SIZE = 4\n")
    path = tmp_path / "my_model.py"
    path.write_text(SOURCE)
    return path


def message(spec) -> str:
    with pytest.raises(UserError) as info:
        load_model(str(spec))
    assert "\n" not in str(info.value)
    return str(info.value)


@pytest.mark.parametrize("name", ["model", "build", "nested.model"])
def test_a_file(file, name):
    assert isinstance(load_model(f"{file}:{name}"), Model)


def test_a_module(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert isinstance(load_model("my_model:model"), Model)
    assert "no module named 'my_model.deeper'" in message("my_model.deeper:model")
    assert "no module named 'nowhere'" in message("nowhere:model")


def test_a_relative_file(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert isinstance(load_model("./my_model.py:model"), Model)


def test_missing_file_and_missing_name(file):
    assert message(f"{file.parent}/none.py:model") == f"no such file [{file.parent}/none.py]"
    text = message(f"{file}:mode")
    assert "no 'mode'" in text
    assert "known: build, wrong, broken, nested, model (did you mean 'model'?)" in text


def test_not_a_model(file):
    assert "my_model.py:text is of type str, not a jq.Model" in message(f"{file}:text")
    assert "my_model.py:wrong is of type int, not a jq.Model" in message(f"{file}:wrong")
    file.write_text("def of_two(params, x, *rest, train=False): ...\n")
    text = message(f"{file}:of_two")
    assert "of_two is a function of params, x; name a jq.Model, or a function of no argu" in text
    file.write_text("class Linear: ...\n\nLinear.__module__ = 'flax.nnx.nn'\nmodule = Linear()\n")
    assert "taken by jq.from_nnx(module, example_inputs)" in message(f"{file}:module")


def test_no_name():
    text = message("my_model")
    assert "'my_model' names no model; give package.module:name" in text
    assert text.endswith("built-in models are written jq.models:NAME")


def test_an_artifact_is_no_model(tmp_path):
    assert message(str(tmp_path)).startswith(f"the folder {tmp_path} has no config.json")
    (tmp_path / "manifest.json").write_text("{}")
    assert message(str(tmp_path)) == f"{tmp_path} is an artifact; give the model that was compiled"


def test_errors_in_the_users_file_have_their_line(file):
    assert f"ZeroDivisionError: division by zero [{file}:13]" in message(f"{file}:broken")
    file.write_text("import numpy\n\nimport not_there\n")
    text = message(f"{file}:model")
    assert f"ModuleNotFoundError: No module named 'not_there' [{file}:3]" in text
    file.write_text("x = 1\ndef f(:\n")
    assert f"SyntaxError: invalid syntax [{file}:2]" in message(f"{file}:model")
    file.write_text("import sys\nsys.exit(3)\n")
    assert f"SystemExit: 3 [{file}:2]" in message(f"{file}:model")


def test_compiler_files_are_given_back(tmp_path):
    for suffix in (".mlir", ".mlirbc", ".jaxexport"):
        path = tmp_path / f"m{suffix}"
        assert "no such file" in message(path)
        path.touch()
        assert load_model(str(path)) == path


def test_built_in_models_are_listed_without_being_built():
    assert "digits_cnn" in message("jq.models:none")
