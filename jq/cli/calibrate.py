"""`jaxq calibrate`: the ranges of every activation, to be used again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jq.base.errors import UserError
from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output

if TYPE_CHECKING:
    from jq.planning.calibration.ranges import Ranges


@command(
    "calibrate",
    example="jaxq calibrate my.py:model --data samples.npz -o ranges.json",
    writes=True,
    asked=options.SIZED | {"settings": options.ASKED["settings"]} | options.WORKERS,
    needs={"data settings sizes values shard jobs dask ray": "!merge"},
)
def calibrate(
    out: Output,
    given: list[str],
    output: Path,
    data: Path | None = None,
    shard: str | None = None,
    merge: bool = False,
    force: bool = False,
    **asked: Any,
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
    workers = options.workers(asked)
    if merge:
        ranges = merged([Path(name) for name in given])
    elif len(given) > 1:
        raise UserError("one model, not several", hint="--merge puts files of ranges together")
    else:
        model = options.sized(given[0], asked)
        with out.progress() as progress:
            ranges = api.calibrate(
                model, data, **asked, shard=shard, workers=workers, progress=progress
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
