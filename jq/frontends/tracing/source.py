"""Names of models on the command line: a model in Python, or a file."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from jq.base.errors import OF_USERS, InternalError, JqError, UserError, known, lacks_memory
from jq.base.from_jax import of_mesh
from jq.base.system.files import check_input
from jq.frontends.gguf import is_gguf
from jq.frontends.model import Model, how_to_take

FILES = (".mlir", ".mlirbc", ".jaxexport", ".onnx", ".tflite", ".tosa")
_USAGE = (
    f"give package.module:name, path/to/file.py:name, or a file ({', '.join(FILES)}; "
    "of a language model .gguf or a folder)"
)

_MISSING = object()
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


READERS: dict[str, Callable[[Path], Model]] = {}


def reader(suffix: str) -> Callable[[Callable[[Path], Model]], Callable[[Path], Model]]:
    """Registers a function that reads the model in a file with this suffix (`.mine`)."""

    def register(read: Callable[[Path], Model]) -> Callable[[Path], Model]:
        if suffix in (*FILES, *READERS):
            raise InternalError(f"two readers of {suffix} files")
        READERS[suffix] = read
        return read

    return register


def load_model(spec: str) -> Model | Path:
    """The model that `spec` names.

    Args:
        spec: `package.module:name` or `path/to/file.py:name`, where name is a `jq.Model` or a
            function of no arguments that returns one; or the path of a `.mlir`, `.mlirbc`,
            `.jaxexport`, `.onnx` or `.tflite` file, which is given back for `trace`; or of a
            `.tosa` file."""
    if Path(spec).suffix in (*FILES, *READERS):
        check_input(Path(spec))
        if Path(spec).suffix == ".tosa":
            from jq.frontends.tosa import load_tosa

            return load_tosa(Path(spec))
        read = READERS.get(Path(spec).suffix)
        return read(Path(spec)) if read else Path(spec)
    return _model(_named(spec, "model"), spec)


def load_function(spec: str) -> Callable[..., Any]:
    """A function of the user's: `package.module:name` or `path/to/file.py:name`."""
    value = _named(spec, "function")
    if not callable(value):
        raise UserError(f"{spec} is of type {type(value).__name__}, not a function")
    return value


def _named(spec: str, what: str) -> Any:
    source, _, name = spec.rpartition(":")
    if not source or not name:
        bare = what == "model" and spec.isidentifier()
        if what == "model" and (Path(spec) / "manifest.json").is_file():
            raise UserError(f"{spec} is an artifact", hint="give the model that was compiled")
        if what == "model" and (is_gguf(Path(spec)) or (Path(spec) / "config.json").is_file()):
            hint = "`jaxq compile`, `compare --text`, `perplexity` and jq.LanguageModel take it"
            raise UserError(f"{spec} is a language model, which is not taken here", hint=hint)
        if what == "model" and Path(spec).is_dir():
            raise UserError(f"the folder {spec} has no config.json", hint=_USAGE)
        built_in = "; built-in models are written jq.models:NAME" if bare else ""
        raise UserError(f"{spec!r} names no {what}", hint=_USAGE + built_in)
    module = _from_file(Path(source)) if source.endswith(".py") else _from_package(source)
    return _attribute(module, name, source)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError("no such file", location=str(path))
    path = path.resolve()  # a link's own file, which may have any suffix
    loader = SourceFileLoader(path.stem, str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None and spec.loader is not None
    module, run = importlib.util.module_from_spec(spec), spec.loader.exec_module
    sys.modules.setdefault(path.stem, module)  # pickling and dataclasses look it up
    with _importable(path.parent):  # as `python path/to/file.py` does it
        _guard(lambda: run(module), str(path), "cannot import")
    return module


def _from_package(name: str) -> ModuleType:
    top, here = name.partition(".")[0], Path.cwd()
    local = top not in sys.modules and ((here / top).is_dir() or (here / f"{top}.py").is_file())
    with _importable(here) if local else nullcontext():
        try:
            exists = importlib.util.find_spec(name) is not None
        except UserError:
            raise
        except (ImportError, ValueError):
            exists = False
        if not exists:
            raise UserError(f"no module named {name!r}", hint=_USAGE)
        module: ModuleType = _guard(lambda: importlib.import_module(name), name, "cannot import")
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The user's module may import what lies beside it, before anything else of that name.

    Afterwards the folder comes last: what the user's functions import when they are called is
    found, but no file there takes the place of a module that we or a library import later."""
    entry = str(folder)
    known = entry in sys.path
    if not known:
        sys.path.insert(0, entry)
    try:
        yield
    finally:
        if not known and entry in sys.path:
            sys.path.remove(entry)
            sys.path.append(entry)


def _guard(action: Any, where: str, what: str) -> Any:
    """Runs the user's code; what it raises becomes one line with the place in that code."""
    try:
        return action()
    except JqError:
        raise
    except OF_USERS as error:
        if lacks_memory(error):
            raise
        said = f"{what}: {type(error).__name__}: {_first_line(error)}"
        raise UserError(said, location=_place(error, where), hint=of_mesh(error)) from error


def _first_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg
    return next(iter(str(error).splitlines()), "no message")


def _place(error: BaseException, where: str) -> str:
    """File and line: of a syntax error, else the last frame in the file that the user named."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    named = [f for f in frames if f.filename == where] or [
        f for f in frames if f.filename != __file__
    ]
    return f"{named[-1].filename}:{named[-1].lineno}" if named else where


def _attribute(module: ModuleType, name: str, source: str) -> Any:
    value: Any = module
    for part in name.split("."):
        # The attribute may be computed, as the built-in models are.
        value = _guard(partial(getattr, value, part, _MISSING), source, f"{name} failed")
        if value is _MISSING:
            raise UserError(f"no {name!r} in {source}", hint=known(name, _candidates(module)))
    return value


def _candidates(module: ModuleType) -> list[str]:
    """Names in a module that could be meant: models, and functions defined there.

    `dir` alone is asked where a module computes its attributes: that may build a model. What it has
    besides those are its imports and functions."""
    if type(module) is not ModuleType or hasattr(module, "__getattr__"):
        names = [n for n in dir(module) if not n.startswith("_")]
        return [n for n in names if n not in vars(module)] or names
    return [
        n
        for n, v in vars(module).items()
        if isinstance(v, Model)
        or (callable(v) and getattr(v, "__module__", None) == module.__name__)
    ]


def _refuse_arguments(function: Callable[..., Any], spec: str) -> None:
    """Refuses a function that has to be given something: the model's own, most likely."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in _VARIADIC]
    if needed:
        hint = "name a jq.Model, or a function of no arguments that returns one"
        raise UserError(f"{spec} is a function of {', '.join(needed)}", hint=hint)


def _model(value: Any, spec: str) -> Model:
    if callable(value) and not isinstance(value, Model) and not how_to_take(value):
        _refuse_arguments(value, spec)
        value = _guard(value, spec, f"{spec} failed")
    if not isinstance(value, Model):
        hint = how_to_take(value) or "return jq.Model(fn, params, example_inputs)"
        raise UserError(f"{spec} is of type {type(value).__name__}, not a jq.Model", hint=hint)
    return value
