"""The plots of a run, as SVG small enough to lie in the repository.

Owns the looks: ours is the only strong colour, and the peers, which have their names beside their bars, share a pale
one; text stays text. Invariants: bars begin at zero, at one where they are ratios, or lie on a scale that is said to be
logarithmic; whiskers are the least and the most of the rounds; who held another durability than the panel's has it in
the label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from benching.subject import SORTS
from benching.summary import Row
from litequeue.bench import Spread

_OURS, _FLOOR = "ours", "bare"
_COLOURS = {_OURS: "#1f5fa8", _FLOOR: "#8c8c8c", "stock": "#d98324", "statements": "#7fa8d0"}
_PEER = "#b7c3cf"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "litequeue",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
_DURABILITIES = ("normal", "full")
_BAR = 0.7


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw what the run has; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    plots: dict[str, Callable[[_Rows], Figure | None]] = {
        "verbs": _verbs,
        "growth": _growth,
        "fairness": _fairness,
        "waking": _waking,
        "worker": _worker,
    }
    written = []
    with mpl.rc_context(_STYLE):
        for name, plot in plots.items():
            figure = plot(_Rows(rows))
            path = folder / f"{name}.svg"
            path.unlink(missing_ok=True)  # an older run's would stand among these
            if figure is not None:
                figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
                plt.close(figure)
                written.append(path)
    return written


class _Rows:
    """The rows of a run that have figures."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in rows if row.figures]

    def of(self, workload: str, cell: str | None = None) -> list[Row]:
        """Return the rows of a workload."""
        return [row for row in self.rows if row.key.workload == workload and cell in {None, row.key.cell}]


def _verbs(rows: _Rows) -> Figure | None:
    """Draw the rates of single verbs and batches: a row for each workload, a column for each durability."""
    names = [
        name for name in ("enqueue", "lease+complete", "enqueue in bulk", "lease+complete in hundreds") if rows.of(name)
    ]
    if not names:
        return None
    most = [max(len(_by_level(rows.of(name, "100 B"), level)) for level in _DURABILITIES) for name in names]
    figure, panels = _panels(
        len(names), 2, sum(0.8 + 0.22 * bars for bars in most), height_ratios=[3 + bars for bars in most]
    )
    for name, bars, line in zip(names, most, panels, strict=True):
        for level, panel in zip(_DURABILITIES, line, strict=True):
            found = sorted(_by_level(rows.of(name, "100 B"), level), key=lambda row: row.figures["us"].median)
            _bars(panel, found, lambda row: _rate(row.figures["us"]))
            panel.set_ylim(bars - 0.5, -0.5)
            panel.set_title(f"{name}, {level}")
            panel.set_xlabel("jobs/s")
    return figure


def _panels(lines: int, columns: int, height: float, **more: str | bool | list[int]) -> tuple[Figure, Any]:
    """Return a figure ten inches wide, and its panels, by line and column."""
    made: tuple[Figure, Any] = plt.subplots(
        lines, columns, figsize=(10, height), squeeze=False, layout="constrained", **more
    )
    return made


def _by_level(rows: Sequence[Row], level: str) -> list[Row]:
    """Return those who held a durability, once each, and those who came nearest to it."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.held.partition(",")[0] == level:
            found.setdefault((row.key.subject, row.held), row)
    return list(found.values())


def _rate(took: Spread) -> Spread:
    return Spread(1e6 / took.median, 1e6 / took.most, 1e6 / took.least)


def _bars(panel: Axes, found: Sequence[Row], value: Callable[[Row], Spread], base: float = 0.0) -> None:
    """Draw a bar for each row, the first at the top, its value at its end; bars begin at `base`."""
    _named_bars(panel, [(_label(row), row.key.subject, value(row)) for row in found], base)


def _named_bars(panel: Axes, bars: Sequence[tuple[str, str, Spread]], base: float = 0.0) -> None:
    """Draw bars by what stands beside them, whose they are, and their values."""
    places = range(len(bars))
    spreads = [spread for _, _, spread in bars]
    panel.barh(
        places,
        [spread.median - base for spread in spreads],
        _BAR,
        left=base,
        color=[_COLOURS.get(subject, _PEER) for _, subject, _ in bars],
        xerr=_whiskers(spreads),
        error_kw={"ecolor": "#333333", "elinewidth": 0.8},
    )
    for place, spread in zip(places, spreads, strict=True):
        panel.annotate(
            _shown(spread.median),
            (max(base, spread.most), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    panel.set_yticks(list(places), [label for label, _, _ in bars])
    for (_, subject, _), label in zip(bars, panel.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if subject == _OURS else "normal")
    panel.invert_yaxis()
    panel.margins(x=0.25)
    panel.tick_params(axis="y", length=0)
    panel.xaxis.set_major_formatter(lambda number, _: f"{number:,.0f}" if number >= 1 else f"{number:g}")
    panel.xaxis.set_major_locator(ticker.MaxNLocator(4))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - readable


def _whiskers(spreads: Sequence[Spread]) -> list[list[float]]:
    return [[spread.median - spread.least for spread in spreads], [spread.most - spread.median for spread in spreads]]


def _label(row: Row) -> str:
    level, _, rest = row.held.partition(",")
    return f"{row.who} ({rest.strip()})" if rest and level in _DURABILITIES else row.who


def _growth(rows: _Rows) -> Figure | None:
    """Draw how many times its cost in an empty file a lease+complete has, beside the most rows of each sort."""
    last = {row.key.cell.rpartition(" ")[0]: row.key.cell for row in rows.of("growth")}  # the levels are in order
    sorts = [sort for sort in SORTS if sort in last]
    if not sorts:
        return None
    found = {
        sort: sorted(rows.of("growth", last[sort]), key=lambda row: row.figures["pair x"].median) for sort in sorts
    }
    most = max(map(len, found.values()))
    highest = max(row.figures["pair x"].most for in_sort in found.values() for row in in_sort)
    lines = -(-len(sorts) // 2)
    figure, panels = _panels(lines, 2, 0.4 + lines * (0.6 + 0.2 * most), sharex=True)
    for panel in list(panels.flat)[len(sorts) :]:
        panel.set_axis_off()
    for panel, sort in zip(panels.flat, sorts, strict=False):
        _bars(panel, found[sort], lambda row: row.figures["pair x"], base=1.0)
        panel.set_ylim(most - 0.5, -0.5)
        panel.set(xscale="log", title=last[sort])
        panel.set_xlim(0.5, max(10.0, highest * 3))
        panel.spines.left.set_position(("data", 1.0))
        panel.yaxis.set_ticks_position("none")
        panel.tick_params(axis="y", pad=30)
        _plain(panel.xaxis)
    figure.supxlabel("lease+complete, × empty (logarithmic)")
    return figure


def _plain(axis: Axis) -> None:
    """Write 1, 10 and 100 on a logarithmic axis, not their powers."""
    axis.set_major_locator(ticker.LogLocator())
    axis.set_major_formatter(lambda number, _: f"{number:g}")
    axis.set_minor_locator(ticker.NullLocator())


def _legend(figure: Figure) -> None:
    """Name the subjects of all panels once, above them."""
    named = {
        label: line for panel in figure.axes for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    in_order = sorted(named, key=lambda label: (label != _OURS, label != _FLOOR, label))
    figure.legend([named[label] for label in in_order], in_order, loc="outside upper center", ncols=len(in_order))


def _fairness(rows: _Rows) -> Figure | None:
    """Draw the share of the least to the most served, and the longest verb, by how many processes there are."""
    own = [row for row in rows.of("drain") if not row.is_peer]
    if not own:
        return None
    figure, panels = _panels(2, 2, 5.5, sharex="col", sharey="row")
    shown = (("share", "least/most served", 1.0), ("longest us", "longest verb, ms (logarithmic)", 1000.0))
    for level, line in zip(_DURABILITIES, panels.T, strict=True):
        held = [row for row in own if row.held == level]
        cells = sorted({row.key.cell for row in held}, key=lambda cell: int(cell.split()[0]))
        subjects = [name for name in (_OURS, "stock", _FLOOR) if any(row.key.subject == name for row in held)]
        for (name, title, unit), panel in zip(shown, line, strict=True):
            for number, subject in enumerate(subjects):
                mine = {row.key.cell: row.figures[name] for row in held if row.key.subject == subject}
                width = _BAR / len(subjects)
                places = [
                    at + (number - (len(subjects) - 1) / 2) * width for at, cell in enumerate(cells) if cell in mine
                ]
                spreads = [Spread(*(value / unit for value in mine[cell])) for cell in cells if cell in mine]
                panel.bar(
                    places,
                    [spread.median for spread in spreads],
                    width * 0.92,
                    yerr=_whiskers(spreads),
                    error_kw={"ecolor": "#333333", "elinewidth": 0.8},
                    color=_COLOURS[subject],
                    label=subject,
                )
            panel.set_ylabel(title if level == _DURABILITIES[0] else "")
            panel.set_xticks(range(len(cells)), cells)
        line[0].set_title(level)
        line[0].set_ylim(0, 1.05)
        line[1].set_yscale("log")
        _plain(line[1].yaxis)
    _legend(figure)
    return figure


def _waking(rows: _Rows) -> Figure | None:
    """Draw the latency from an enqueue to the lease in another process, and what it costs to wait for it."""
    found = sorted(rows.of("wake-up"), key=lambda row: row.figures["p50 ms"].median)
    if not found:
        return None
    figure, panels = _panels(1, 3, 0.9 + 0.3 * len(found))
    shown = (
        ("p50 ms", "p50, ms"),
        ("p99 ms", "p99, ms"),
        ("idle %", "idle, % of a core"),
    )
    for number, ((name, title), panel) in enumerate(zip(shown, panels.flat, strict=True)):
        _bars(panel, found, lambda row, name=name: row.figures[name])  # type: ignore[misc]
        panel.set_xlabel(title)
        if number:
            panel.set_yticklabels([])
    return figure


def _worker(rows: _Rows) -> Figure | None:
    """Draw the rates of workers by where handlers run and how many at once, beside single verbs of the same runs."""
    found = rows.of("worker")
    if not any(row.key.subject == _OURS for row in found):
        return None
    held = {level: _worker_bars(_by_cell(found, level)) for level in _DURABILITIES}
    most = max(map(len, held.values()))
    figure, panels = _panels(1, 2, 0.9 + 0.25 * most)
    for panel, (level, bars) in zip(panels.flat, held.items(), strict=True):
        _named_bars(panel, bars)
        panel.set_ylim(most - 0.5, -0.5)
        panel.set_title(level)
        panel.set_xlabel("jobs/s")
    return figure


def _by_cell(found: Sequence[Row], level: str) -> list[Row]:
    """Return those who held a durability, ours first, and the peers in each cell by their rates."""
    mine = [row for row in found if row.held == level]
    cells = list(dict.fromkeys(row.key.cell for row in mine if row.key.subject == _OURS))
    return sorted(
        (row for row in mine if row.key.cell in cells),
        key=lambda row: (row.is_peer, cells.index(row.key.cell), row.figures["us"].median),
    )


def _worker_bars(found: Sequence[Row]) -> list[tuple[str, str, Spread]]:
    """Return single verbs, by the first cell of ours, and then each worker."""
    singly = [("single verbs", _FLOOR, _rate(row.figures["single us"])) for row in found[:1]]
    return singly + [
        (f"{row.who}: {row.key.cell}" if row.is_peer else row.key.cell, row.key.subject, _rate(row.figures["us"]))
        for row in found
    ]
