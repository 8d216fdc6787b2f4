"""The place of the data files that belong to the package."""

from pathlib import Path

from jq.base.errors import InternalError, UserError, known


def data_dir(kind: str) -> Path:
    """The folder of our `pipelines` or `targets`: inside an installed package, or in a clone."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / kind, package.parent / kind):
        if folder.is_dir():
            return folder
    raise InternalError(f"the installation has no {kind!r} folder", hint="install jaxq again")


def data_names(kind: str) -> list[str]:
    """The names of our `pipelines` or `targets`, sorted."""
    return sorted(path.stem for path in data_dir(kind).glob("*.toml"))


def data_file(kind: str, name: str) -> Path:
    """The TOML file for `name`: one of ours by its name, or a path to the user's own.

    Raises:
        UserError: there is no such file; the hint lists the names of ours.
    """
    own = Path(name)
    if own.suffix == ".toml" or own.parent != Path():
        if own.is_file():
            return own
        raise UserError(f"no such file: {name}", hint=f"give a path, or one of our {kind} by name")
    if name not in data_names(kind):
        hint = known(name, data_names(kind))
        raise UserError(f"unknown {kind.removesuffix('s')} {name!r}", hint=hint)
    return data_dir(kind) / f"{name}.toml"
