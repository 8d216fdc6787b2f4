"""Passes: their base class, and how they are found and run.

The fields of a pass are its options in `order.txt`. It edits a program in place, leaves it
valid, and says whether it changed anything."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base.errors import LOG, FormatError, InternalError, JqError, UserError, lacks_memory
from jq.base.registry import import_all, in_words, register
from jq.ir import Program
from jq.planning.decisions import QuantPlan
from jq.planning.moments.collect import MomentsCache
from jq.planning.moments.gains import Gains
from jq.planning.moments.inputs import Wanted
from jq.target import Rule, Settings, Target

NO_DATA = "it needs calibration data"
P = TypeVar("P")
Arrays = Mapping[str, np.ndarray]
Make = Callable[[], Arrays]
Report = Callable[[float | None], None]  # told the share that is done; None: not known


@contextmanager
def of_weight(name: str) -> Iterator[None]:
    """Adds the weight's name to what a format refuses."""
    try:
        yield
    except FormatError as error:
        raise UserError(error.message, op=name, hint=error.hint) from error


def unheard(share: float | None) -> None:
    """A report that nobody listens to."""


@dataclass(frozen=True)
class PassContext:
    """Input of passes besides the program.

    `recover` is off where the structure of the program is all that is wanted: recovery passes then
    do nothing. `report` is told the share of a long pass that is done. `known_smoothing` are the
    factors that given ranges were observed with; `gains` are those found so far, for the next pass,
    `moments` those of the last plan, where there are several; `batches` are those of the data that
    moments are taken of, if no pass says so; `results` has what earlier runs found. `rules` and
    `explicit` are what the plan is made by (see `jq.planning.planner.plan`), for passes in front of
    it. What passes decide stands in the program (`jq.ir.decisions`, `Program.chosen`)."""

    plan: QuantPlan
    settings: Settings
    target: Target
    data: Sequence[Sequence[np.ndarray]] | None = None  # calibration: flat inputs, batch by batch
    known_smoothing: Mapping[str, np.ndarray] | None = None
    gains: Gains = field(default_factory=Gains)
    moments: MomentsCache | None = None
    batches: Sequence[int] | None = None
    results: Cache | None = None
    rules: tuple[Rule, ...] = ()
    explicit: frozenset[str] = frozenset()
    recover: bool = True
    report: Report = unheard

    def found(self, program: Program, what: str, make: Make) -> Arrays:
        """The result of `make`, or of an earlier run; either way the same gains are known
        afterwards, so that later passes give the same bits.

        Args:
            program: as it is before `make` runs.
            what: the pass with all its settings."""
        self.gains.forget_gradient()
        made = make() if self.results is None else self._kept(self.results, program, what, make)
        self.gains.forget_gradient()
        return made

    def _kept(self, results: Cache, program: Program, what: str, make: Make) -> Arrays:
        """The result of `make`, kept in one entry with the gains that it finds."""
        known = set(self.gains.known)

        def both() -> Arrays:
            made = make()
            return _under("made", made) | _under("gain", self.gains.packed(known))

        entry = results.of([program_digest(program), what, self.gains.digest()], both)
        self.gains.unpack(_of("gain", entry))
        return _of("made", entry)


def _under(kind: str, arrays: Arrays) -> dict[str, np.ndarray]:
    return {f"{kind} {key}": array for key, array in arrays.items()}


def _of(kind: str, entry: Arrays) -> Arrays:
    head = f"{kind} "
    return {k.removeprefix(head): array for k, array in entry.items() if k.startswith(head)}


def _as_dataclass(kind: type[P]) -> type[P]:
    """A class with its fields as the arguments of a call; its author may have said so himself."""
    said = "__dataclass_fields__" in vars(kind)
    return kind if said else dataclass(frozen=True)(kind)


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Pass(ABC):
    """One rewrite. A subclass is a frozen dataclass, and registers itself, unless it is `shared` by
    several passes; `FoldWeights` has the name `fold-weights`.

    The passes of this package stand in `jq.passes.order`. One from outside names in `after` the
    pass that it follows, and its docstring says why."""

    name: ClassVar[str] = ""
    after: ClassVar[str | None] = None
    registry: ClassVar[dict[str, type["Pass"]]] = {}

    def __init_subclass__(cls, shared: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if shared:
            _as_dataclass(cls)
            return
        if "name" not in vars(cls):
            cls.name = in_words(cls, "-")
        register(Pass.registry, "pass", cls.name, cls)

    def __new__(cls, *args: Any, **options: Any) -> Self:
        return super().__new__(_as_dataclass(cls))

    @abstractmethod
    def run(self, program: Program, cx: PassContext) -> bool:
        """Rewrites `program` in place; True when it changed anything."""

    def chosen(self, settings: Settings) -> bool:
        """True if the settings let it run, where it stands in the order."""
        return True

    def weighs(self, program: Program, cx: PassContext) -> tuple[Sequence[Wanted], Sequence[int]]:
        """The inputs whose rows it will weigh by `cx.gains`, and the batches of the data that it
        takes moments of: what may be found in front, for several plans at once."""
        return (), ()

    def look(self, program: Program, cx: PassContext) -> None:
        """Asks of the data what `run` will ask, so that `cx.moments` knows the answer."""
        return  # most ask nothing


class Recovery(Pass, shared=True):
    """A pass that keeps accuracy.

    One that needs calibration data is skipped where there are none. `optional`: in the order, it
    runs only where the setting `recovery` names it. `in_ranges`: given ranges have its result."""

    needs_data: ClassVar[bool] = True
    optional: ClassVar[bool] = True
    in_ranges: ClassVar[bool] = False

    def run(self, program: Program, cx: PassContext) -> bool:
        if not (cx.recover and self.wanted(program, cx)):
            return False
        if self.needs_data and not cx.data and (not self.in_ranges or cx.known_smoothing is None):
            self.skip(program, NO_DATA)
            return False
        return self.recover(program, cx)

    def chosen(self, settings: Settings) -> bool:
        chosen = settings.recovery
        return self.name in chosen if isinstance(chosen, tuple) else chosen and not self.optional

    def skip(self, program: Program, reason: str) -> None:
        """Tells the user, once, that the pass does nothing."""
        text, known = f"{self.name} was skipped: {reason}", program.notes
        if text in known:
            return
        if reason != NO_DATA:
            LOG.warning("%s", text)
        elif not any(other.endswith(NO_DATA) for other in known):  # once for all passes
            steps = f"the steps that recover accuracy ({self.name}, ...)"
            LOG.warning("without calibration data %s are skipped", steps)
        program.tell(text)

    def wanted(self, program: Program, cx: PassContext) -> bool:
        """True if there is anything to do under these settings."""
        return True

    @abstractmethod
    def recover(self, program: Program, cx: PassContext) -> bool:
        """Rewrites as `run`, with data where it needs them."""


def known_passes() -> Mapping[str, type[Pass]]:
    """Every pass by name."""
    import_all("jq.passes")
    return Pass.registry


def make_pass(name: str, options: Mapping[str, Any]) -> Pass:
    """The pass called `name` with its options."""
    return known_passes()[name](**options)


def run_all(passes: Iterable[Pass], program: Program, cx: PassContext) -> list[str]:
    """Runs the passes that the settings let run in order, verifying after each that changed
    something and at the end; the names of those that did."""
    changed: list[str] = []
    done: list[str] = []
    for p in passes:
        if not p.chosen(cx.settings):
            continue
        try:
            if p.run(program, cx):
                changed.append(p.name)
                program.verify()
        except Exception as error:
            if isinstance(error, JqError) and not isinstance(error, InternalError):
                raise
            if lacks_memory(error):
                raise MemoryError(f"pass {p.name}: {error}") from error
            before = ", ".join(done) or "none"
            raise InternalError(
                f"pass {p.name} failed: {type(error).__name__}: {error}"
                f" (passes before it: {before})"
            ) from error
        done.append(p.name)
    program.verify()  # what says that it changed nothing may have tidied up
    return changed
