"""The setting `recovery`: true, false, or the names of passes."""

import pytest

from jq.base.errors import UserError
from jq.passes.base import Recovery
from jq.passes.pipeline import load_pipeline
from jq.target.rules import parse_assignments


def running(pipeline, text):
    loaded = load_pipeline(pipeline, parse_assignments([text] if text else []))
    steps = [p for passes in loaded.passes.values() for p in passes if isinstance(p, Recovery)]
    return {p.name for p in steps if p.chosen(loaded.settings)}


def test_true_is_what_the_pipeline_chose_and_false_is_none():
    chosen = running("int8-static", "")
    assert chosen == running("int8-static", "recovery=true") != set()
    assert "bias-correction" in chosen and "clip" not in chosen
    assert running("int8-static", "recovery=false") == set()


def test_biases_are_corrected_by_default_where_ranges_are_calibrated():
    assert "bias-correction" in running("int8x16-static", "recovery=true")
    for pipeline in ("int8-dynamic", "int8-weight-only", "int4-weight-only"):
        assert "bias-correction" not in running(pipeline, "")


@pytest.mark.parametrize("text", ["clip", "clip,bias-correction", "gptq,bias-correction"])
@pytest.mark.parametrize("pipeline", ["int8-static", "int4-weight-only", "int4-dynamic"])
def test_names(pipeline, text):
    assert running(pipeline, f"recovery={text}") == set(text.split(","))


def test_an_unknown_name():
    with pytest.raises(UserError, match="no recovery pass 'fold-weights'") as error:
        running("int8-static", "recovery=gptq,fold-weights")
    assert "bias-correction" in (error.value.hint or "")


@pytest.mark.parametrize(("name", "instead"), [("adaround", "gptq")])
def test_a_removed_name_is_answered_with_what_to_use(name, instead):
    with pytest.raises(UserError, match=f"{name!r} is gone") as error:
        running("int8-static", f"recovery={name}")
    assert instead in (error.value.hint or "")
