"""A folder of Hugging Face with its matrices as integers that are fitted to a text.

    jaxq quantize FOLDER OUT --type int4 --importance TEXT

The layout is that of `checkpoint`, with float16 scales. Codes and scales are chosen by GPTQ and
coordinate descent (`jq.passes.recovery`), a layer at a time: no more than one is held in float32.
What comes into the next layer is kept beside those that are done: a run that was ended goes on
there, to the same bytes."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from jq.base.npz import read_array
from jq.base.progress import Progress, Stages, silent
from jq.base.system.files import written_whole
from jq.base.system.threads import one_thread
from jq.formats import QuantizedTensor, affine_format
from jq.frontends.safetensors import read_file, read_folder, write_model
from jq.language.checkpoint import Kind, begin, finish, opened
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
    run = {"bits": chosen.bits, "group": group, "source": str(source), "text": read}
    begin(out, {**run, "aim": "gptaq"})
    start = _states(out)
    first = start[0] if start else 0
    known = Architecture.registry[decoder.config.architecture]
    raw = dict(read_folder(source))
    held = names_of_text(config, raw)
    pairs = expanded(known.names.hugging_face, decoder.config)
    names = {ours: held[name] for name, ours in pairs if name in held}
    folder = _Folder(out, chosen, raw, names)
    folder.skip(first)

    def encode(path: str, aim: Aim, gram: np.ndarray) -> QuantizedTensor | None:
        alone = path in folder.names  # not one of a stack
        if not alone or "/router/" in path or len(gram) % (group or 8):
            return None
        with one_thread() as threads, clock("solve"):
            return _fitted(chosen, aim(), gram, group, threads)

    told, keep = partial(progress, "quantize"), partial(_keep, out)
    layers = quantized_layers(decoder, pieces, encode, told, start, keep)
    for i, found in enumerate(layers, first):
        for path, leaf in found.items():
            assert isinstance(leaf, QuantizedTensor)
            folder.replace(path, leaf)
        with clock("write"):
            folder.write(_file(i), folder.taken(i))
    with clock("write"):
        folder.write("tables.safetensors", folder.raw)
    for kept in out.glob(_STATES.format("*")):
        kept.unlink()
    finish(out, source, config, chosen, beside, folder.places)
    rest = time.perf_counter() - begun - sum(clock.seconds.values())
    return Fitted(folder.quantized, {"network": rest, "solve": 0.0, **clock.seconds})


@dataclass
class _Folder:
    """Attributes:
    raw: tensors by their names in the folder that are not written yet.
    names: of weights, by their paths in the network.
    places: the files of tensors that are written.
    quantized: number of matrices."""

    out: Path
    chosen: Kind
    raw: dict[str, np.ndarray]
    names: Mapping[str, str]
    places: dict[str, str] = field(default_factory=dict)
    quantized: int = 0

    def skip(self, layers: int) -> None:
        """Leaves out the first ones, which an earlier run wrote."""
        for i in range(layers):
            self.places |= dict.fromkeys(read_file(self.out / _file(i)), _file(i))
            self.taken(i)
        self.quantized = sum(name.endswith("weight_packed") for name in self.places)

    def taken(self, i: int) -> dict[str, np.ndarray]:
        """A layer's tensors, which are no longer in `raw`."""
        own = [n for n in self.raw if f".layers.{i}." in f".{n}" or f".h.{i}." in n]
        return {name: self.raw.pop(name) for name in own}

    def replace(self, path: str, leaf: QuantizedTensor) -> None:
        """Puts a matrix's codes and scales in its place."""
        name = self.names[path]
        del self.raw[name]
        codes = np.ascontiguousarray(self.chosen.stored(leaf.parts["codes"])).view(np.int32)
        module = name.removesuffix(".weight")
        self.raw |= self.chosen.tensors(module, codes, leaf.parts["scale"], leaf.shape)
        self.quantized += 1

    def write(self, file: str, tensors: Mapping[str, np.ndarray]) -> None:
        with written_whole(self.out / file) as path:
            write_model(path, tensors)
        self.places |= dict.fromkeys(tensors, file)


def _fitted(
    chosen: Kind, weight: np.ndarray, gram: np.ndarray, group: int, threads: int
) -> QuantizedTensor:
    """A matrix [rows, columns] in codes and float16 scales that lose least of its products."""
    stored = replace(chosen.encoding(weight.shape), scale_type="float16")
    turned = stored.with_shape(weight.T.shape, (group, 1))
    found = solve(np.ascontiguousarray(weight.T), gram, turned, threads=threads)
    codes = affine_format(stored.format).pack(found.codes.T, stored)
    scale = np.ascontiguousarray(found.scale.T.astype(np.float16))
    return QuantizedTensor(stored, {"codes": codes, "scale": scale})


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
