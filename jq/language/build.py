"""Compiles a program of a language model, in a process of its own.

Compiling takes memory that generating has no need of: the process that generates only ever loads
what this one wrote, and does not import JAX."""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from jq.artifact.keys import digest
from jq.base.errors import JqError, UserError
from jq.base.system.child import death, python_command
from jq.base.system.files import write_text, written_whole
from jq.base.system.folders import make_private
from jq.language.store import Described, Options, Shape
from jq.target.rules import Rule

# Activations in blocks, as weights have them: large values spoil no others.
_SETTINGS: dict[str, Any] = {"activations.granularity": "per-block", "activations.block_size": 32}
_SETTINGS |= {"activations.scheme": "symmetric"}
# Two int8 digits where int8 costs most accuracy for its time: the head, which is computed for one
# token of a prompt and otherwise waits for memory, and keys and values, which have few columns.
_TWO_DIGITS = {"activations.format": "int16", "activations.options.divisor": "absmax/63"}
_FINE = ["head/*", *(f"layers/*/attention/{name}/*" for name in ("key", "value", "qkv"))]
_USER, _OURS = 2, 3  # exit codes: the last line is a message for people


def build(model: Path, options: Options, shape: Shape, folder: Path) -> None:
    """Compiles a program into a folder, in another process; what goes wrong there is raised."""
    given = [str(model), asdict(options), asdict(shape), str(folder)]
    command = python_command("jq.language.build", json.dumps(given))
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if not (code := done.returncode):
        return
    who = "the process that compiles a program of the language model"
    if code < 0:
        how, hint = death(code)
        raise JqError(f"{who} {how}", hint=hint)
    *_, last = ["", *done.stderr.strip().splitlines()]
    if code in (_USER, _OURS) and last:
        raise (UserError if code == _USER else JqError)(last)
    raise JqError(f"{who} failed{f': {last}' if last else f' (exit code {code})'}")


def own_settings(options: Options) -> tuple[dict[str, Any], list[Rule]]:
    """The settings and rules that programs of a language model are compiled with."""
    settings: dict[str, Any] = {"storage.inline_limit": 0}
    rules = []
    if options.pipeline != "float":
        settings |= {"attention_precision": "float32"}
    if options.pipeline == "int8-dynamic":
        settings |= _SETTINGS
        rules = [Rule(pattern=pattern, override=_TWO_DIGITS) for pattern in _FINE]
    if options.cache == "int8":
        settings |= {"kv_cache.format": "int8"}
    return settings, rules


def write(model: Path, options: Options, shape: Shape, folder: Path) -> None:
    """Compiles a program and writes it, and what weights the folder does not have yet."""
    from jq.artifact.parameters import read_index, write_parameters
    from jq.base.progress import Stages
    from jq.driver.job import prepare_job
    from jq.driver.request import Request
    from jq.driver.stages import build, plan_job
    from jq.language.decoder import load_decoder
    from jq.language.decoder.network import state_shapes
    from jq.language.decoder.program import decoder_model

    decoder, (settings, rules) = load_decoder(model), own_settings(options)
    float_model = decoder_model(
        decoder,
        shape.count,
        shape.capacity,
        context=options.context,
        batch=options.batch,
        cache="float32" if options.cache == "int8" else options.cache,
        every=shape.every,
        apart=shape.apart,
        stacks=settings.get("activations.granularity") == "per-block",  # as their kernel wants
    )
    stages = Stages()
    request = Request(options.pipeline, "llvm-cpu", settings, rules, stages=stages)
    job = prepare_job(float_model, request)
    made = build(job, plan_job(job, stages), stages, key_of=lambda name, array: digest(array)[:24])
    known = {key for archive in folder.glob("*.irpa") for key in read_index(archive)}
    assert isinstance(made.vmfb, bytes)
    parameters = made.parameters if isinstance(made.parameters, dict) else {}
    fresh = {key: array for key, array in parameters.items() if key not in known}
    needs = made.programs[0].needs
    states = state_shapes(decoder.config, options.batch, shape.capacity)
    described = Described.model_validate(
        {
            "inputs": [(i.shape, i.dtype) for i in made.inputs],
            "outputs": [(o.shape, o.dtype) for o in made.outputs],
            "grows": _grows(states, made.inputs[1 - len(made.outputs) :]),
            "cpu": (needs.architecture, sorted(needs.features)),
        }
    )
    make_private(folder)
    if fresh:
        # Beside the archives, where none is looked for.
        with tempfile.TemporaryDirectory(dir=folder) as work:
            archive = Path(work) / f"{shape.name}.irpa"
            write_parameters(archive, fresh)
            archive.replace(folder / archive.name)
    with written_whole(folder / f"{shape.name}.vmfb") as program:
        program.write_bytes(made.vmfb)
    write_text(folder / f"{shape.name}.json", f"{described.model_dump_json(indent=1)}\n")


def _grows(states: list[list[tuple[tuple[int, ...], bool]]], inputs: Any) -> list[bool]:
    """True for each input that is a state and holds all tokens. Those that do may come as
    several, as codes and scales; `UserError` where one that does not came so."""
    flat = [state for own in states for state in own]
    growing = sum(grows for _, grows in flat)
    several = (len(inputs) - len(flat) + growing) // max(growing, 1)
    each = [state for state in flat for _ in range(several if state[1] else 1)]
    same = len(each) == len(inputs) and all(
        grows or shape == tuple(given.shape)
        for (shape, grows), given in zip(each, inputs, strict=True)
    )
    if not same:
        raise UserError("states of this model cannot be kept in such a cache", hint="float32")
    return [grows for _, grows in each]


def main(text: str) -> NoReturn:
    """Entry point of the other process, with the JSON that `build` gave it."""
    model, options, shape, folder = json.loads(text)
    try:
        write(Path(model), Options(**options), Shape(**shape), Path(folder))
    except JqError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        sys.exit(_USER if isinstance(error, UserError) else _OURS)
    sys.exit(0)
