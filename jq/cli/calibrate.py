"""`jaxq calibrate`: the ranges of every activation, to be used again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jq.base.errors import UserError
from jq.cli import completion, options
from jq.cli.command import command
from jq.cli.output import Output

if TYPE_CHECKING:
    from jq.planning.calibration.ranges import Ranges


@command(
    "calibrate",
    example="jaxq calibrate my.py:model --data samples.npz -o ranges.json",
    writes=True,
    needs={"data settings sizes values shard jobs dask ray": "!merge"},
)
def calibrate(
    out: Output,
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            autocompletion=completion.models,
            help="As for `jaxq compile`; with --merge the files of ranges to put together.",
        ),
    ],
    output: Path,
    data: Path | None = None,
    settings: list[str] | None = None,
    sizes: list[str] | None = None,
    values: list[str] | None = None,
    shard: str | None = None,
    merge: bool = False,
    jobs: int = 1,
    dask: str | None = None,
    ray: str | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Observes the activations of the float model on samples and saves their ranges.

    Args:
        output (-o RANGES.json): Where they go.
        data (FILE.npz): Samples; the model's own by default.
        shard (I/N): Only part I of N of the data: 1/4 is the first of four.
        merge: Put together the ranges of all shards."""
    from jq import api
    from jq.base.system.files import check_new

    check_new(output, force=force)
    workers = options.workers(jobs, dask, ray)
    if merge:
        ranges = merged([Path(name) for name in given])
    elif len(given) > 1:
        raise UserError("one model, not several", hint="--merge puts files of ranges together")
    else:
        model = options.sized(given[0], {"sizes": sizes, "values": values})
        with out.progress() as progress:
            ranges = api.calibrate(
                model, data, settings=settings, shard=shard, workers=workers, progress=progress
            )
    ranges.save(output)
    out.line(f"wrote {output}" + (f": shard {ranges.shards}" if ranges.shards.count else ""))
    return {"path": str(output), "tensors": len(ranges.sites), "samples": ranges.samples}


def merged(files: list[Path]) -> "Ranges":
    """The ranges of several runs as those of one."""
    from jq.planning.calibration.ranges import Ranges

    total, *others = map(Ranges.load, files)
    for file, found in zip(files[1:], others, strict=True):
        try:
            total = total.merge(found)
        except UserError as error:
            raise UserError(f"{file}: {error.message}", hint=error.hint) from error
    return total
