"""A folder of Hugging Face with its matrices as integers that are fitted to a text.

    jaxq quantize FOLDER OUT --type int4 --importance TEXT

The layout is that of `checkpoint`, with float16 scales. Codes and scales are chosen by GPTQ and
coordinate descent (`jq.passes.recovery`), a layer at a time: no more than one is held in float32.
What comes into the next layer is kept beside those that are done: a run that was ended goes on
there, to the same bytes."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from jq.base.npz import read_array
from jq.base.progress import Progress, Stages, silent
from jq.base.system.files import written_whole
from jq.base.system.threads import one_thread
from jq.formats import QuantizedTensor, affine_format
from jq.frontends.safetensors import read_file, read_folder, write_model
from jq.language.checkpoint import begin, finish, opened
from jq.language.decoder import load_decoder
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.layerwise import Aim, quantized_layers
from jq.language.decoder.names import expanded
from jq.language.decoder.text import names_of_text
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.quantize import pieces_of
from jq.passes.recovery._solve import solve

_STATES = ".jaxq-states-{}.npy"


@dataclass(frozen=True)
class Fitted:
    """Number of matrices in the folder that are quantized, and seconds of this run: `network`
    (reading weights, and moments of what products read), `solve`, `write`."""

    quantized: int
    seconds: dict[str, float]


def fit_folder(
    source: Path,
    out: Path,
    texts: Sequence[Path],
    limit: int = 64,
    kind: str = "int4",
    group: int = 32,
    progress: Progress = silent,
) -> Fitted:
    """Writes the checkpoint; table, head, norms, biases, routers and expert stacks stay as is.

    Args:
        texts: text files, of which at most `limit` pieces of 256 tokens are read.
        group: columns that share a scale; 0: all of a row. A matrix that it does not divide stays.

    Raises:
        UserError: the checkpoint is quantized already or not known, the text is too short, or `out`
            holds other things than a run with the same options has begun."""
    begun, clock = time.perf_counter(), Stages()
    chosen, config, beside = opened(source, kind, group)
    decoder = load_decoder(source)
    pieces = pieces_of(texts, tokenizer_of_folder(source), decoder.config, limit)
    read = hashlib.sha256(np.asarray(pieces).tobytes()).hexdigest()
    begin(
        out,
        {"bits": chosen.bits, "group": group, "source": str(source), "text": read, "aim": "gptaq"},
    )
    known = Architecture.registry[decoder.config.architecture]
    raw, places, start = dict(read_folder(source)), dict[str, str](), _states(out)
    held = names_of_text(config, raw)
    pairs = expanded(known.names.hugging_face, decoder.config)
    theirs = {ours: held[name] for name, ours in pairs if name in held}
    first = start[0] if start else 0
    for i in range(first):
        places |= dict.fromkeys(read_file(out / _file(i)), _file(i))
        raw = {name: a for name, a in raw.items() if f".layers.{i}." not in f".{name}"}
    count = sum(name.endswith("weight_packed") for name in places)

    def encode(path: str, aim: Aim, gram: np.ndarray) -> QuantizedTensor | None:
        alone = path in theirs  # not one of a stack
        if not alone or "/router/" in path or len(gram) % (group or 8):
            return None
        weight = aim()
        stored = replace(chosen.encoding(weight.shape), scale_type="float16")
        turned = stored.with_shape(weight.T.shape, (group, 1))
        with one_thread() as threads, clock("solve"):
            found = solve(np.ascontiguousarray(weight.T), gram, turned, threads=threads)
        codes = affine_format(stored.format).pack(found.codes.T, stored)
        scale = np.ascontiguousarray(found.scale.T.astype(np.float16))
        return QuantizedTensor(stored, {"codes": codes, "scale": scale})

    layers = quantized_layers(
        decoder,
        pieces,
        encode,
        lambda share: progress("quantize", share),
        start,
        partial(_keep, out),
    )
    for i, found in enumerate(layers, first):
        for path, leaf in found.items():
            assert isinstance(leaf, QuantizedTensor)
            name = theirs[path]
            del raw[name]
            codes = np.ascontiguousarray(chosen.stored(leaf.parts["codes"])).view(np.int32)
            module = name.removesuffix(".weight")
            raw |= chosen.tensors(module, codes, leaf.parts["scale"], leaf.shape)
            count += 1
        own = [name for name in raw if f".layers.{i}." in f".{name}"]
        with clock("write"):
            _write(out, _file(i), {n: raw.pop(n) for n in own}, places)
    with clock("write"):
        _write(out, "tables.safetensors", raw, places)
    for kept in out.glob(_STATES.format("*")):
        kept.unlink()
    finish(out, source, config, chosen, beside, places)
    rest = time.perf_counter() - begun - sum(clock.seconds.values())
    return Fitted(count, {"network": rest, "solve": 0.0, **clock.seconds})


def _file(layer: int) -> str:
    return f"layer-{layer}.safetensors"


def _keep(out: Path, layer: int, x: np.ndarray) -> None:
    """Keeps the input of a layer, once those before it are written."""
    with written_whole(out / _STATES.format(layer)) as path, path.open("wb") as file:
        np.save(file, x)
    (out / _STATES.format(layer - 1)).unlink(missing_ok=True)


def _states(out: Path) -> tuple[int, np.ndarray] | None:
    """The layer that an earlier run came to, and what comes into it."""
    numbered = ((p.stem.rpartition("-")[2], p) for p in out.glob(_STATES.format("*")))
    found = {int(number): p for number, p in numbered if number.isdecimal()}
    return (last := max(found), read_array(found[last])) if found else None


def _write(
    folder: Path, file: str, tensors: Mapping[str, np.ndarray], places: dict[str, str]
) -> None:
    with written_whole(folder / file) as path:
        write_model(path, tensors)
    places |= dict.fromkeys(tensors, file)
