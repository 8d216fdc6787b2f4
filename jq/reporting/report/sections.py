"""The parts of the page, each the text of one section."""

import math
import shlex
from collections.abc import Iterator
from html import escape

from jq.base.tables import size
from jq.driver.comparison.metrics import AGREEMENTS, BETWEEN, DESCRIPTIONS
from jq.driver.comparison.outputs import worst
from jq.driver.comparison.result import LayerError
from jq.reporting.measuring.verdict import furthest, layer_verdict, noise_warning, outputs_verdict
from jq.reporting.report.facts import Facts
from jq.reporting.report.graph import drawing, legend
from jq.reporting.report.parts import bars, cell, number, table, tile

SPREAD = 15.0  # dB between the worst layer and the outputs, from where on no layer stands out
PICK = (
    '<aside id="detail" class="card" aria-live="polite"><p>Choose a layer, here or in any table, to'
    " see its figures, its row of the plan and its histograms.</p></aside>"
)
ZOOM = (
    '<span class="tools" hidden><button type="button" data-zoom="-">−</button>'
    '<button type="button" data-zoom="+">+</button>'
    '<button type="button" data-zoom="fit">all of it</button>'
    '<button type="button" data-zoom="1">full size</button></span>'
)
BY = (
    '<span class="tools" hidden>coloured by the error <button type="button" data-by="all"'
    ' aria-pressed="true">along the model</button><button type="button" data-by="own"'
    ' aria-pressed="false">of the layer alone</button></span>'
)


def tiles(facts: Facts) -> Iterator[str]:
    first, audit = facts.comparison.outputs[0], facts.audit
    yield tile(f"{number(first.sqnr_db)} dB", "SQNR of the first output")
    yield tile(f"{first.cosine:.5f}", "cosine, mean")
    yield tile(f"{first.cosine_min:.5f}", "cosine, worst sample")
    yield tile(size(audit["module_bytes"] + audit["parameter_bytes"]), "module and parameters")
    if audit["float_parameter_bytes"]:
        yield tile(size(audit["float_parameter_bytes"]), "parameters in float")
    yield tile(f"{facts.latency['median_ms']:.3g} ms", "median latency, one thread")
    if facts.float_latency:
        yield tile(
            f"{facts.float_latency['median_ms']:.3g} ms", "the float model's, compiled alike"
        )
    for name, both in facts.comparison.metrics.items():
        beside = "" if name in BETWEEN else f" (float {number(both['float'])})"
        yield tile(number(both["quantized"]), f"{name.replace('_', ' ')}{beside}")


def _beside_float(name: str, reference: str, quantized: str) -> str:
    """A metric of both models, or of the one against the other."""
    if name in AGREEMENTS:
        return f"the {DESCRIPTIONS[name]} is {quantized}"
    beside = "" if name in BETWEEN else f" ({reference} with floats)"
    return f"{name.replace('_', ' ')} is {quantized}{beside}"


def verdict(facts: Facts) -> str:
    """The whole in a few sentences."""
    audit, compared = facts.audit, facts.comparison
    sentences = [outputs_verdict(compared)]
    for name, both in compared.metrics.items():
        values = number(both["float"]), number(both["quantized"])
        sentences.append(_beside_float(name, *values))
    stored, floats = (
        audit["module_bytes"] + audit["parameter_bytes"],
        audit["float_parameter_bytes"],
    )
    if floats:
        times = floats / stored
        smaller = (
            f"{times:.1f} times smaller than" if times > 1 else f"{1 / times:.1f} times as large as"
        )
        sentences.append(f"the artifact is {smaller} the float weights")
    if facts.float_latency:
        ratio = facts.float_latency["median_ms"] / facts.latency["median_ms"]
        sentences.append(f"a call takes {1 / ratio:.2f} of the time of the compiled float model")
    sentences.append(layer_verdict(compared.layers))
    text = " ".join(f"{s[0].upper()}{s[1:]}." for s in sentences if s)
    noisy = "".join(f'<p class="warning">{escape(w)}.</p>' for w in warnings(facts))
    return f'<p class="verdict">{escape(text)}</p>{noisy}'


def warnings(facts: Facts) -> list[str]:
    """Warnings about figures that the reader should not rely on."""
    found = [noise_warning(facts.latency)]
    if facts.float_latency:
        found.append(noise_warning(facts.float_latency, "the float model's latency"))
    return [text[0].upper() + text[1:] for text in found if text]


def rules(facts: Facts) -> str:
    """Rules to paste, and the commands that try them."""
    if not facts.suggestions:
        no_float = " Float is none: this program is all integers." if facts.integer_only else ""
        return (
            "<p>No rule suggests itself: no layer that could be given more bits makes more noise by"
            f" itself than a hundredth of its signal.{no_float}</p>"
        )
    rows = (
        (
            f'<td class="code"><code>--rule {escape(shlex.quote(s.rule))}</code></td>',
            cell(s.why),
            cell(s.hope),
        )
        for s in facts.suggestions
    )
    every = [word for s in facts.suggestions for word in ("--rule", s.rule)]
    words = ["jaxq", "compile", facts.source, "-o", "OUT2"]
    command = shlex.join([*words, *every, *facts.options])
    again = f"jaxq compare {shlex.quote(facts.source)} {shlex.quote(facts.artifact)} OUT2"
    layers = [[name] for name in facts.suggested]
    return (
        "<p>Rules for the layers that make most noise by themselves, the worst first. They are"
        " suggestions and were not run: what to expect is an estimate for the layer's own result,"
        " if the rule took away all noise that the layer makes itself. Each costs bytes and time;"
        f" the commands below show whether they pay.{_adds_up(facts)}</p>"
        + table(("rule to paste", "the layer now", "its result, to expect"), rows, layers=layers)
        + f"<pre>{escape(command)}\n{escape(again)}</pre>"
    )


def _adds_up(facts: Facts) -> str:
    """Said where no layer by itself comes near the error of the outputs."""
    own = furthest(facts.comparison.layers)[0].isolated_sqnr_db
    if own - worst(facts.comparison.outputs)["sqnr_db"] < SPREAD:
        return ""
    return (
        " Here the noise of many layers adds up, none of which is bad alone: single rules help"
        " little, more bits for all of them, or a pass that keeps accuracy, may."
    )


def graph(facts: Facts) -> str:
    if not facts.comparison.layers:
        return "<p>There are no layers that could be quantized.</p>"
    errors = {layer.name: layer for layer in facts.comparison.layers}
    stays = frozenset(op["name"] for op in facts.manifest.ops if op.get("decision") == "float")
    return (
        "<p>Inputs above, outputs below; a circle is where paths meet. Functions on one layer's"
        " result alone are part of its edge.</p>"
        f'{legend()}<div class="bar-of-tools">{ZOOM}{BY}</div><div class="beside">'
        f'<div class="net by-all">{drawing(facts.graph, errors, stays)}</div>{PICK}</div>'
    )


def layers(facts: Facts) -> str:
    found = sorted(facts.comparison.layers, key=lambda layer: layer.sqnr_db)
    finite = [share for layer in found for share in _shares(layer) if math.isfinite(share)]
    most = max(finite, default=1.0)
    heads = ("layer", "op", "noise", "SQNR dB", "alone dB", "cosine", "max |error|")
    rows = (
        (
            cell(layer.name, "name"),
            cell(layer.op),
            bars(*_shares(layer), most),
            *map(cell, (layer.sqnr_db, layer.isolated_sqnr_db, layer.cosine, layer.max_abs_error)),
        )
        for layer in found
    )
    note = (
        "<p>Noise over signal (amplitudes): the upper bar along the quantized model, the lower one"
        " when the layer alone is quantized. Click a head to sort.</p>"
    )
    return note + table(heads, rows, sortable=True, layers=[[layer.name] for layer in found])


def _shares(layer: LayerError) -> tuple[float, float]:
    """Noise over signal, accumulated and alone."""
    accumulated, own = (10 ** (-db / 20) for db in (layer.sqnr_db, layer.isolated_sqnr_db))
    return accumulated, own
