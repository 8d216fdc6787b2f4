"""The page as text: one HTML file, nothing fetched; every name in it is escaped (`page.html`)."""

import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from jq.base.tables import size
from jq.driver.comparison.metrics import AGREEMENTS, BETWEEN, DESCRIPTIONS
from jq.driver.comparison.outputs import worst
from jq.driver.comparison.result import LayerError
from jq.reporting.measuring import verdict as verdicts
from jq.reporting.report.facts import Facts, Shape
from jq.reporting.report.graph import BOX, RADIUS, TALL, WORDS, drawing

_FOLDER = Path(__file__).parent
SECTIONS = {
    "rules": "What to try",
    "graph": "The model, coloured by error",
    "layers": "Layers by error",
    "outputs": "Outputs",
    "activations": "Activations",
    "weights": "Weights",
    "size": "Size",
    "latency": "Latency",
    "plan": "Plan",
    "provenance": "How this page was made",
}
LINKS = {"graph": "Graph", "provenance": "Provenance"}
SPREAD = 15.0  # dB between the worst layer and the outputs, from where on no layer stands out
WIDTH, HEIGHT = 240, 80  # of a histogram


def environment() -> Environment:
    """Jinja's, with what the page shows values by."""
    made = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    made.globals |= {"width": WIDTH, "height": HEIGHT, "sections": SECTIONS, "links": LINKS}
    made.globals |= {"box": BOX, "tall": TALL, "radius": RADIUS, "words": WORDS}
    made.filters |= {"number": verdicts.number, "size": size, "quoted": shlex.quote, "drawn": drawn}
    made.filters["sorted_by"] = lambda v: v if math.isfinite(v) else math.copysign(1e300, v)
    made.filters["json"] = lambda layers: json.dumps(list(layers))
    return made


def render(facts: Facts) -> str:
    """The page as text."""
    style, script = (
        Markup((_FOLDER / name).read_text(encoding="utf-8")) for name in ("style.css", "script.js")
    )
    errors = {layer.name: layer for layer in facts.comparison.layers}
    stays = frozenset(op["name"] for op in facts.manifest.ops if op.get("decision") == "float")
    page = environment().get_template("page.html")
    return page.render(
        facts=facts,
        style=style,
        script=script,
        verdict=verdict(facts),
        warnings=warnings(facts),
        tiles=tiles(facts),
        commands=commands(facts),
        adds_up=adds_up(facts),
        drawing=drawing(facts.graph, errors, stays),
        layers=layers(facts),
        latencies=[facts.latency, *([facts.float_latency] if facts.float_latency else [])],
    )


def tiles(facts: Facts) -> Iterator[tuple[str, str]]:
    first, audit = facts.comparison.outputs[0], facts.audit
    yield f"{verdicts.number(first.sqnr_db)} dB", "SQNR of the first output"
    yield f"{first.cosine:.5f}", "cosine, mean"
    yield f"{first.cosine_min:.5f}", "cosine, worst sample"
    yield size(audit["module_bytes"] + audit["parameter_bytes"]), "module and parameters"
    if audit["float_parameter_bytes"]:
        yield size(audit["float_parameter_bytes"]), "parameters in float"
    yield f"{facts.latency['median_ms']:.3g} ms", "median latency, one thread"
    if facts.float_latency:
        yield f"{facts.float_latency['median_ms']:.3g} ms", "the float model's, compiled alike"
    for name, both in facts.comparison.metrics.items():
        beside = "" if name in BETWEEN else f" (float {verdicts.number(both['float'])})"
        yield verdicts.number(both["quantized"]), f"{name.replace('_', ' ')}{beside}"


def _beside_float(name: str, reference: str, quantized: str) -> str:
    """A metric of both models, or of the one against the other."""
    if name in AGREEMENTS:
        return f"the {DESCRIPTIONS[name]} is {quantized}"
    beside = "" if name in BETWEEN else f" ({reference} with floats)"
    return f"{name.replace('_', ' ')} is {quantized}{beside}"


def verdict(facts: Facts) -> str:
    """The whole in a few sentences."""
    audit, compared = facts.audit, facts.comparison
    sentences = [verdicts.outputs_verdict(compared)]
    for name, both in compared.metrics.items():
        values = verdicts.number(both["float"]), verdicts.number(both["quantized"])
        sentences.append(_beside_float(name, *values))
    if floats := audit["float_parameter_bytes"]:
        times = floats / (audit["module_bytes"] + audit["parameter_bytes"])
        smaller = f"{times:.1f} times smaller than"
        smaller = smaller if times > 1 else f"{1 / times:.1f} times as large as"
        sentences.append(f"the artifact is {smaller} the float weights")
    if facts.float_latency:
        ratio = facts.float_latency["median_ms"] / facts.latency["median_ms"]
        sentences.append(f"a call takes {1 / ratio:.2f} of the time of the compiled float model")
    sentences.append(verdicts.layer_verdict(compared.layers))
    return " ".join(f"{s[0].upper()}{s[1:]}." for s in sentences if s)


def warnings(facts: Facts) -> list[str]:
    """Warnings about figures that the reader should not rely on."""
    found = [verdicts.noise_warning(facts.latency)]
    if facts.float_latency:
        found.append(verdicts.noise_warning(facts.float_latency, "the float model's latency"))
    return [text[0].upper() + text[1:] for text in found if text]


def commands(facts: Facts) -> str:
    """The commands that try all rules."""
    every = [word for s in facts.suggestions for word in ("--rule", s.rule)]
    words = ["jaxq", "compile", facts.source, "-o", "OUT2", *every, *facts.options]
    sizes = [option for option in facts.options if option.startswith("--size=")]
    again = ["jaxq", "compare", facts.source, facts.artifact, "OUT2", *sizes]
    return "\n".join(map(shlex.join, (words, again)))


def adds_up(facts: Facts) -> bool:
    """True where no layer by itself comes near the error of the outputs."""
    most = verdicts.furthest(facts.comparison.layers)
    far = most[0].isolated_sqnr_db - worst(facts.comparison.outputs)["sqnr_db"] if most else 0.0
    return far >= SPREAD


def layers(facts: Facts) -> list[tuple[LayerError, dict[str, Any]]]:
    """The layers, the worst first, each with its bars: along the model, and alone, on one scale."""
    found = sorted(facts.comparison.layers, key=lambda layer: layer.sqnr_db)
    shares = [
        [10 ** (-db / 20) for db in (layer.sqnr_db, layer.isolated_sqnr_db)] for layer in found
    ]
    most = max((s for both in shares for s in both if math.isfinite(s)), default=1.0)
    scale = 100 / most if most > 0 else 0.0
    rows = []
    for layer, both in zip(found, shares, strict=True):
        along, own = (f"{min(share * scale, 100):.1f}" for share in both)
        rows.append((layer, {"value": both[0], "along": along, "own": own}))
    return rows


def drawn(shape: Shape) -> dict[str, Any]:
    """A histogram's bars, whose heights are square roots of counts, so that tails are seen, and the
    places of the ends of what codes stand for."""
    edges, counts = rebinned(shape.edges, shape.counts)
    low, high, bars = float(edges[0]), float(edges[-1]), []
    scale = WIDTH / (high - low or 1.0)
    tallest = math.sqrt(max(float(counts.max(initial=0)), 1.0))
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count:
            tall = max(1.0, math.sqrt(float(count)) / tallest * (HEIGHT - 2))
            wide, clip = max((right - left) * scale - 0.3, 0.4), shape.clip
            cut = clip is not None and not clip[0] <= (left + right) / 2 <= clip[1]
            places = {"x": (left - low) * scale, "y": HEIGHT - tall, "wide": wide, "tall": tall}
            bars.append({"cut": cut, **{key: f"{value:.2f}" for key, value in places.items()}})
    ends = [(end - low) * scale for end in shape.clip or ()]
    inside = [f"{x:.2f}" for x in ends if 0 <= x <= WIDTH]
    return {"low": low, "high": high, "bars": bars, "ends": inside}


def rebinned(
    edges: np.ndarray, counts: np.ndarray, most: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring bins together, until there are at most `most`."""
    by = max(1, -(-len(counts) // most))
    pad = -len(counts) % by
    width = edges[1] - edges[0] if len(edges) > 1 else 1.0
    wide = np.concatenate([counts, np.zeros(pad)]).reshape(-1, by).sum(1)
    return edges[0] + width * by * np.arange(len(wide) + 1), wide
