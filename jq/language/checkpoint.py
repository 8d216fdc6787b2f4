"""A folder of Hugging Face with its matrices as integers, in the layout of compressed-tensors.

    jaxq quantize FOLDER OUT --type int4

A shard of the source becomes a shard of the same name. Rows of a matrix are read, rounded and
written some at a time, so that memory depends neither on the model nor on its largest matrix. A
shard takes its place when it is whole: a run that was ended goes on after the last one.

`jq.frontends.checkpoints.integers` describes the layout; scales are bfloat16, no zero points."""

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jq.base.errors import UserError, check_known
from jq.base.progress import Progress, silent
from jq.base.system.files import check_folder, json_object, read_text, write_text, written_whole
from jq.formats import Deferred, Encoding, affine_format
from jq.formats.affine_math import FULL
from jq.frontends.safetensors import INDEX, SINGLE, read_shards, write_model
from jq.frontends.sidecars import copy_files, sidecars
from jq.language.decoder import check_folder_of
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.huggingface import read_config

Values = dict[str, Any]  # of a config
BITS = {"int4": 4, "int8": 8}
PIECE = 1 << 24  # elements that are rounded at a time
BEGUN = ".jaxq-quantize.json"  # what a run that has not ended yet does
_BESIDE, _WRITTEN = (".json", ".txt", ".model", ".jinja"), (INDEX, "config.json")
_TABLES = ("lm_head.weight", "wte.weight", "wpe.weight")  # and what begins with `embed_`
_GATES = (".gate.weight", ".shared_expert_gate.weight")  # other names of routers


@dataclass(frozen=True)
class Kind:
    """Codes of `bits` bits, one scale for each `group` columns of a row; 0: for the row."""

    bits: int
    group: int

    def config(self, head: str) -> dict[str, Any]:
        """The quantization in `config.json`; the `head` stays."""
        weights: dict[str, Any] = {"num_bits": self.bits, "type": "int", "symmetric": True}
        weights |= {"strategy": "group" if self.group else "channel", "dynamic": False}
        weights |= {"group_size": self.group or None}
        groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
        found: dict[str, Any] = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
        found |= {"quantization_status": "compressed", "config_groups": groups, "ignore": [head]}
        return found

    def stored(self, codes: np.ndarray) -> np.ndarray:
        """Codes u8 as files have them, from 0 on; packed ones are so already."""
        return codes.view(np.uint8) ^ np.uint8(0x80 if self.bits == 8 else 0)

    def tensors(
        self, module: str, codes: Any, scales: Any, shape: tuple[int, ...]
    ) -> dict[str, Any]:
        """Those that a matrix is stored as, by name, in the order that they are made in."""
        found = {"packed": codes, "scale": scales, "shape": np.array(shape, np.int64)}
        return {f"{module}.weight_{part}": array for part, array in found.items()}

    def encoding(self, shape: tuple[int, ...]) -> Encoding:
        full = (("divisor", FULL),)
        return Encoding(f"int{self.bits}", shape, (1, self.group), "symmetric", "bfloat16", full)


@dataclass
class Written:
    """Totals of what was written, and the number of shards that were there already."""

    quantized: int = 0
    kept: int = 0
    bytes: int = 0
    source_bytes: int = 0
    resumed: int = 0


def quantize_folder(
    source: Path, out: Path, kind: str = "int4", group: int = 32, progress: Progress = silent
) -> Written:
    """Writes the model in `source` with its matrices rounded to integers.

    Embedding, head, norms, biases and routers stay as they are, and so does a matrix whose columns
    the group does not divide.

    Args:
        out: a new folder, or one that a run with the same options has begun.
        group: columns that share a scale; 0: all of a row.

    Raises:
        UserError: the source is no such folder, is quantized already, or `out` has other files."""
    chosen, config, beside = opened(source, kind, group)
    shards = read_shards(source)
    if not any(_chosen(n, a, chosen) for held in shards.values() for n, a in held.items()):
        raise UserError("no matrix in it can be rounded", location=str(source))
    files = list(shards)
    sizes = [(source / f).stat().st_size for f in files]
    begin(out, {"bits": chosen.bits, "group": group, "files": files, "sizes": sizes})
    found, where = Written(source_bytes=sum(sizes)), dict[str, str]()

    def told(i: int, share: float) -> None:
        progress("quantize", (i + share) / len(files))

    for i, (file, tensors) in enumerate(shards.items()):
        told(i, 0)
        done, entries = out / file, _entries(tensors, chosen)
        if done.exists():
            found.resumed += 1
        else:
            with written_whole(done) as temporary:
                write_model(temporary, entries, partial(told, i))
        where |= dict.fromkeys(entries, file)
        packed = sum(name.endswith(".weight_packed") for name in entries)
        found.quantized += packed
        found.kept += len(tensors) - packed
        found.bytes += done.stat().st_size
    finish(out, source, config, chosen, beside, where)
    return found


def opened(source: Path, kind: str, group: int) -> tuple[Kind, Values, list[Path]]:
    """The kind that is asked for, the config of a folder, and the files beside its weights;
    `UserError` where there is no such kind, the folder is quantized already, or not known."""
    check_known("type", kind, BITS)
    if group < 0 or group % (32 // BITS[kind]):
        raise UserError(f"groups of {group} columns do not fill words of 32 bits")
    check_folder_of(source)
    config = json_object(source / "config.json")
    if config.get("quantization_config") is not None:
        raise UserError("the model is quantized already", location=str(source))
    known = Architecture.registry[read_config(source).architecture]
    if any("*" not in name for name in known.swapped):
        what = f"matrices of {known.name} are [in, out], which compressed-tensors has no layout for"
        raise UserError(what, location=str(source), hint="quantize a GGUF file of the model")
    beside = sidecars(source, lambda p: p.suffix in _BESIDE and p.name not in _WRITTEN)
    return Kind(BITS[kind], group), config, beside


def begin(out: Path, options: dict[str, Any]) -> None:
    """Makes `out`, or sees that the same options began it; `UserError` for anything else."""
    plan, marker = json.dumps(options), out / BEGUN
    check_folder(out, force=True)
    if out.exists() and any(out.iterdir()):
        if not marker.exists() or read_text(marker) != plan:
            what = "the folder is not empty, and no run with these options has begun it"
            raise UserError(what, location=str(out), hint="name another folder")
        return
    out.mkdir(exist_ok=True)
    write_text(marker, plan)


def finish(
    out: Path, source: Path, config: Values, kind: Kind, beside: list[Path], where: dict[str, str]
) -> None:
    """Writes the index of the weights, of which `where` has the files, copies what lies beside
    them, and writes the config last: then the folder is whole."""
    if (files := set(where.values())) != {SINGLE}:
        total = sum((out / file).stat().st_size for file in files)
        index = {"metadata": {"total_size": total}, "weight_map": where}
        write_text(out / INDEX, json.dumps(index, indent=1))
    copy_files(beside, source, out)
    head = "embed_out" if "embed_out.weight" in where else "lm_head"  # of GPT-NeoX
    whole = config | {"quantization_config": kind.config(head)}
    write_text(out / "config.json", json.dumps(whole, indent=1))
    (out / BEGUN).unlink()


def _entries(tensors: dict[str, np.ndarray], kind: Kind) -> dict[str, np.ndarray | Deferred]:
    found: dict[str, np.ndarray | Deferred] = {}
    for name, array in tensors.items():
        if not _chosen(name, array, kind):
            found[name] = Deferred(array.shape, array.dtype, partial(_pieces, array))
            continue
        rows, columns = array.shape
        words, groups = columns * kind.bits // 32, columns // (kind.group or columns)
        pieces = list[np.ndarray]()  # of scales, known when the codes are written
        made, emptied = partial(_codes, array, kind, pieces), partial(_emptied, pieces)
        codes = Deferred((rows, words), np.dtype(np.int32), made)
        scales = Deferred((rows, groups), np.dtype(ml_dtypes.bfloat16), emptied)
        found |= kind.tensors(name.removesuffix(".weight"), codes, scales, array.shape)
    return found


def _chosen(name: str, array: np.ndarray, kind: Kind) -> bool:
    stays = name.endswith((*_TABLES, *_GATES)) or "router" in name or ".embed_" in f".{name}"
    if array.ndim != 2 or not name.endswith(".weight") or stays:
        return False
    floats = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
    whole = array.shape[1] % (kind.group or 32 // kind.bits) == 0
    return floats and whole and "norm" not in name


def _codes(array: np.ndarray, kind: Kind, scales: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The codes of a matrix, which is rounded some rows at a time; `scales` gets theirs."""
    fmt, step = affine_format(f"int{kind.bits}"), max(1, PIECE // array.shape[1])
    for first in range(0, len(array), step):
        rows = np.asarray(array[first : first + step], np.float32)
        if not np.isfinite(rows).all():
            raise UserError("a weight holds NaN or infinity")
        parts = fmt.encode(rows, kind.encoding(rows.shape))
        scales.append(parts["scale"])
        forget(array)
        yield kind.stored(parts["codes"]).reshape(-1)


def _emptied(pieces: list[np.ndarray]) -> Iterator[np.ndarray]:
    while pieces:
        yield pieces.pop(0)


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    flat = array.reshape(-1)
    for first in range(0, max(flat.size, 1), PIECE):
        yield flat[first : first + PIECE]
        forget(array)


def forget(array: np.ndarray) -> None:
    """Gives back the memory of a mapped file that was read; it is read again where it is needed."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
