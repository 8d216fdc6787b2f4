"""Tables for people, as plain text."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Characters that a terminal obeys instead of showing them: control characters but for the end of a
# line and the tab, what turns the direction of writing around, and halves of a character.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_PARTS = re.compile(r"[^/]*/+|[^/]+")


def printable(text: str) -> str:
    r"""Text that a terminal may get, whoever wrote it: what it would obey is escaped (`\x1b`)."""
    return _OBEYED.sub(lambda m: ascii(m[0])[1:-1], text)


class SafeConsole(Console):
    """Shows every text as `printable` has it, brackets included; `Text` alone has styles."""

    def __init__(self, **options: Any) -> None:
        # In a notebook, rich shows what is printed there, wherever it was to go.
        super().__init__(markup=False, emoji=False, force_jupyter=False, **options)

    def on_broken_pipe(self) -> None:
        """`jaxq ... | head` is an end like others, and not one of rich's choosing."""
        raise  # rich calls this while it handles the error

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as it is shown, before it is measured: columns have that width."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


class LongTable(Table):
    """A table that breaks its cells between words, and behind the `/` of paths, and nowhere else.

    Where the widest words of all columns do not fit side by side, each row is a block of lines
    `column: value`. From `LONG` rows on nothing is folded, and columns are aligned up to `WIDEST`
    characters: rich measures, wraps and styles each cell, which takes long."""

    LONG, WIDEST = 2000, 60

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [[_plain(x) for x in (c.header, *c.cells)] for c in self.columns]
        if self.row_count < self.LONG:
            widths = _widths(columns, options.max_width - 2 * len(columns))  # two blanks a column
            if widths is None:
                yield from self._blocks(options.max_width)
            else:
                yield from Table.__rich_console__(self._folded(widths), console, options)
            return
        padded = [
            _aligned(texts, self.WIDEST, c.justify == "right")
            for c, texts in zip(self.columns, columns, strict=True)
        ]
        lines = map(str.rstrip, map("  ".join, zip(*padded, strict=True)))
        title = [_plain(self.title)] if self.title else []
        yield Segment("\n".join([*title, *lines, ""]))

    def _folded(self, widths: Sequence[int]) -> Table:
        """The same table with columns of these widths."""
        table = copy(self)
        table.columns = [
            replace(
                c,
                width=width,
                header=_broken(c.header, width),
                _cells=[_broken(cell, width) for cell in c.cells],
            )
            for c, width in zip(self.columns, widths, strict=True)
        ]
        return table

    def _blocks(self, width: int) -> Iterable[Text]:
        """A block of lines for each row, which begins with the first column."""
        if self.title:
            yield Text(_plain(self.title), style="italic")
        names = [_plain(c.header) for c in self.columns]
        for row in zip(*(c.cells for c in self.columns), strict=True):
            for i, (name, cell) in enumerate(zip(names, row, strict=True)):
                if _plain(cell):
                    start = f"{'  ' if i else ''}{name}: " if name else ""
                    yield Text(start).append_text(_broken(cell, width - cell_len(start)))


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The width of each column, all together at most `room`: as wide as its texts, else as its
    widest word at least. None where the words alone are wider."""
    least = [max(cell_len(w) for text in c for w in _words(text)) for c in columns]
    most = [max(map(cell_len, column)) for column in columns]
    left = room - sum(least)
    if left < 0:
        return None
    widths = list(least)
    wants = sorted(range(len(columns)), key=lambda i: most[i] - least[i])
    for place, i in enumerate(wants):
        widths[i] += (more := min(most[i] - least[i], left // (len(wants) - place)))
        left -= more
    return widths


def _words(text: str) -> list[str]:
    """The parts that stay whole: words, and the parts of paths with the `/` behind them."""
    return [part for word in text.split() for part in _PARTS.findall(word)] or [""]


def _broken(cell: RenderableType, width: int) -> Text:
    """The text, in which words that are wider than `width` have line breaks behind their `/`."""
    text = cell if isinstance(cell, Text) else Text(printable(str(cell)))
    breaks = []
    for word in re.finditer(r"\S+", text.plain):
        line = 0
        for part in _PARTS.finditer(word[0]) if cell_len(word[0]) > width else ():
            if line and line + cell_len(part[0]) > width:
                breaks.append(word.start() + part.start())
                line = 0
            line += cell_len(part[0])
    return Text("\n").join(text.divide(breaks)) if breaks else text


def _plain(cell: RenderableType) -> str:
    return printable(str(cell)).replace("\n", " ")


def _aligned(texts: list[str], most: int, right: bool) -> list[str]:
    sizes = [len(t) if t.isascii() else cell_len(t) for t in texts]
    width = min(max(sizes), most)
    gaps = (" " * (width - size) for size in sizes)
    return [gap + t if right else t + gap for t, gap in zip(texts, gaps, strict=True)]


def plain_table(*columns: str, title: str | None = None) -> Table:
    """The one style of tables: no lines, the title in front."""
    return LongTable(*columns, title=title, title_justify="left", box=None, pad_edge=False)


def to_text(*parts: RenderableType, width: int = 140) -> str:
    """Text as rich would print it, without colours."""
    out = io.StringIO()
    console = SafeConsole(file=out, width=width, no_color=True)
    for part in parts:
        console.print(part, crop=False)
    return out.getvalue().rstrip()


def to_html(*parts: RenderableType, width: int = 140) -> str:
    """Text as rich would print it, as HTML for a notebook."""
    console = SafeConsole(file=io.StringIO(), width=width, record=True)
    for part in parts:
        console.print(part, highlight=False, crop=False)
    return console.export_html(code_format="<pre>{code}</pre>", inline_styles=True)


class Shown:
    """A result that shows itself: as text, at a prompt too, and as HTML in a notebook."""

    def table(self) -> Table:
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Lines below the table."""
        return []

    def parts(self) -> list[Table | str]:
        return [self.table(), *self.notes()]

    def __str__(self) -> str:
        return to_text(*self.parts())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return to_html(*self.parts())


def size(count: float) -> str:
    """Bytes for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def groups(
    records: Sequence[Mapping[str, Any]], *keys: str
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Records that agree in `keys`, together, in the order of their first."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(tuple(record[key] for key in keys), []).append(record)
    return found
