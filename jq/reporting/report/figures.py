"""The parts of the page that are a table or a plot of measured figures."""

from html import escape

from jq.base.tables import size
from jq.reporting.report.facts import Facts, Shape
from jq.reporting.report.parts import cell, facts_list, histogram, rebinned, table


def outputs(facts: Facts) -> str:
    heads = ("output", "shape", "SQNR dB", "cosine", "worst", "max |error|", "equal")
    rows = (
        (
            cell(o.name, "name"),
            cell("x".join(map(str, o.shape)) or "scalar"),
            *map(cell, (o.sqnr_db, o.cosine, o.cosine_min, o.max_abs_error, o.match)),
        )
        for o in facts.comparison.outputs
    )
    return table(heads, rows)


def plots(shapes: list[Shape]) -> str:
    if not shapes:
        return "<p>None.</p>"
    cards = (
        histogram(s.name, *rebinned(s.edges, s.counts), s.clip, s.note, s.layers) for s in shapes
    )
    note = "<p>Heights: square roots of counts. Dashed: the ends of what the codes stand for.</p>"
    return f'{note}<div class="plots">{"".join(cards)}</div>'


def sizes(facts: Facts) -> str:
    heads = ("weight", "shape", "format", "granularity", "stored bytes", "of float")
    weights = facts.audit["weights"]
    rows = (
        (
            cell(w["name"], "name"),
            cell("x".join(map(str, w["shape"]))),
            cell(w["format"]),
            cell(w["granularity"]),
            cell(w["stored_bytes"]),
            cell(w["stored_bytes"] / w["float_bytes"] if w["float_bytes"] else None),
        )
        for w in weights
    )
    readers = [facts.readers.get(w["name"], ()) for w in weights]
    return table(heads, rows, sortable=True, layers=readers)


def latency(facts: Facts) -> str:
    keys = ("median_ms", "p90_ms", "min_ms", "runs", "threads", "load_ms")
    both = [facts.latency, *([facts.float_latency] if facts.float_latency else [])]
    rows = [(cell(k.replace("_", " ")), *(cell(each[k]) for each in both)) for k in keys]
    rows.append((cell("peak memory"), *(cell(size(each["peak_rss_bytes"]), "n") for each in both)))
    heads = ("figure", "this artifact", "float")[: len(both) + 1]
    note = f"<p>{escape(facts.float_note)}</p>" if facts.float_note else ""
    return note + table(heads, rows)


def plan(facts: Facts) -> str:
    heads = ("op", "kind", "decision", "weights", "activations", "kernel", "reason")
    rows = (
        (
            cell(op.get("name"), "name"),
            *(cell(op.get(key)) for key in ("op", "decision", "weights", "activations", "kernel")),
            cell(op.get("reason") or op.get("no_kernel")),
        )
        for op in facts.manifest.ops
    )
    names = [[str(op.get("name"))] for op in facts.manifest.ops]
    return table(heads, rows, sortable=True, layers=names)


def provenance(facts: Facts) -> str:
    return facts_list(facts.provenance)
