"""Built-in models are found by name, lazily, next to the modules of the same name."""

import importlib
import subprocess
import sys

import pytest

import jq.models
from jq.base.errors import UserError
from jq.frontends.model import Model


def test_names_come_with_descriptions():
    names = jq.models.names()
    assert {"digits_cnn", "minilm"} <= names.keys()
    assert all(text and "\n" not in text and not text.endswith(".") for text in names.values())


def test_listing_imports_no_model():
    code = (
        "import sys, jq.models; jq.models.names();"
        "sys.exit(any(n in sys.modules for n in ('jq.models.zoo.minilm', 'sklearn', 'tokenizers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_attribute_is_a_model_also_after_importing_its_file():
    from jq.models.zoo.digits_cnn import build

    model = importlib.import_module("jq.models").digits_cnn
    assert isinstance(model, Model)
    assert model is jq.models.digits_cnn is jq.models.get("digits_cnn")
    assert callable(build)


def test_unknown_names():
    with pytest.raises(AttributeError):
        _ = jq.models.no_such_model
    with pytest.raises(UserError, match="known: digits_cnn"):
        jq.models.get("no_such_model")
    assert not hasattr(jq.models, "_secret")
    assert "minilm" in dir(jq.models)
