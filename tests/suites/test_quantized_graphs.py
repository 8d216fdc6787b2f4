"""A fixed sample of drawn graphs; `scripts/suite.py quantized_graphs` runs 500."""

from __future__ import annotations

SAMPLE = range(16)


def test_a_sample_keeps_its_codes(judged):
    from suites import quantized_graphs
    from suites.outcome import RIGHT

    found = judged(quantized_graphs.judge, SAMPLE)
    assert len(found) == len(SAMPLE)
    assert [one for one in found if one.verdict != RIGHT] == []
