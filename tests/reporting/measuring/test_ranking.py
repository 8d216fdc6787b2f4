"""Several artifacts in one table, and the small model that shows them."""

from __future__ import annotations

import csv
import io
import json

import pytest

import jq
from jq.base.errors import UserError
from jq.cli.app import main
from jq.reporting.measuring.ranking import rank

PIPELINES = ("float", "int8-static", "int8-weight-only")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("artifacts")
    for name in PIPELINES:
        jq.compile(jq.models.mlp, name).save(root / name)
    return [str(root / name) for name in reversed(PIPELINES)]


def test_the_most_exact_comes_first(folders):
    found = rank(jq.models.mlp, folders)
    assert [row["pipeline"] for row in found.rows] == ["float", "int8-weight-only", "int8-static"]
    assert found.columns() == ("artifact", "pipeline", "bytes", "sqnr_db", "cosine_min")
    for row, path in ((row, row["artifact"]) for row in found.rows):
        alone = jq.compare(jq.models.mlp, jq.load(path))
        assert row["sqnr_db"] == alone.outputs[0].sqnr_db
        assert row["cosine_min"] == alone.outputs[0].cosine_min


def test_markdown_csv_and_json(folders, capsys):
    arguments = ["compare", "jq.models:mlp", *folders, "-q"]
    assert main([*arguments, "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "| artifact | pipeline | bytes | sqnr_db | cosine_min |" and len(lines) == 5
    assert main([*arguments, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["pipeline"] for row in rows] == ["float", "int8-weight-only", "int8-static"]
    assert main([*arguments, "--json", "--metric", "top1_agreement", "--bench"]) == 0
    document = json.loads(capsys.readouterr().out)["artifacts"]
    assert all(row["median_ms"] > 0 for row in document)
    assert document[0]["top1_agreement"] == 1.0


def test_it_shows_itself(folders):
    found = rank(jq.models.mlp, folders)
    assert repr(found) == str(found) and "int8-weight-only" in str(found)
    assert found._repr_html_().startswith("<pre>")


def test_what_cannot_be_ranked(folders, capsys):
    other = jq.Model(lambda p, x: x, (), jq.models.mlp.example_inputs)
    with pytest.raises(UserError, match=rf"compiled from another model.*\[{folders[0]}\]"):
        rank(other, folders)
    assert main(["compare", "jq.models:mlp", *folders, "--layers"]) == 2
    assert "one artifact" in capsys.readouterr().err


def test_help_has_no_type_for_a_flag(capsys):
    assert main(["compare", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any("<bool>" in line for line in lines if "--help" not in line)
