"""Figures from the tables of reports.py, as SVG and PNG, by matplotlib without a display.

Where matplotlib is missing, `with_matplotlib` makes a virtual environment for it once, in the cache folder, and starts
the program again in there: nothing of the system is changed. The same table gives the same SVG, byte for byte.
"""

import os
import subprocess
import sys

from models import cache_folder

REQUIREMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.txt")
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442")  # told apart by all


def with_matplotlib():
    """Returns when matplotlib can be imported; raises OSError where it cannot be had."""
    try:
        import matplotlib  # pylint: disable=unused-import,import-outside-toplevel

        return
    except ImportError:
        pass
    folder = os.path.join(cache_folder(), "plots")
    python = os.path.join(folder, "bin", "python")
    if os.path.realpath(sys.prefix) == os.path.realpath(folder):
        raise OSError(f"matplotlib is missing in {folder}: remove the folder, it is made anew")
    if not os.path.exists(os.path.join(folder, "ready")):
        print(f"making {folder} for matplotlib, once ...", file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS]):
            if subprocess.run(command, check=False).returncode != 0:
                raise OSError(f"'{' '.join(command)}' failed; --no-plots makes the tables alone")
        with open(os.path.join(folder, "ready"), "w", encoding="utf-8"):
            pass
    os.execv(python, [python, *sys.argv])


def _label(line, names):
    """What several columns say, as one text; a number of one column stays one, to be placed by its size."""
    names = (names,) if isinstance(names, str) else names
    found = [line[name] for name in names if name]
    return found[0] if len(found) == 1 else ", ".join(map(str, found))


def _drawn(lines, plot):
    """The lines that are drawn: of those that a mean over tasks stands for, the mean, unless tasks have places."""
    named = {plot.x, plot.series} if isinstance(plot.x, str) and isinstance(plot.series, str) else {*plot.x, *plot.series}
    chosen = [line for line in lines if not plot.only or line[plot.only[0]] == plot.only[1]]
    return [line for line in chosen if line.get(plot.y) is not None and ("task" in named or line.get("task") in (None, "mean"))]


def placed(lines, plot):
    """{name of a series: {place: line}}, in the order in which they come. Of two lines at one place of a series one would
    hide the other, so that is an error: the plot must name the column in which they differ."""
    found = {}
    for line in _drawn(lines, plot):
        series, place = str(_label(line, plot.series) if plot.series else ""), _label(line, plot.x)
        if place in found.setdefault(series, {}):
            raise ValueError(f"two lines at '{place}' of '{series}' in a plot of {plot.y}: {found[series][place]} and {line}")
        found[series][place] = line
    return found


def _errors(lines, plot):
    """Below and above what is drawn."""
    heights = [line[plot.y] for line in lines]
    if not plot.spread or all(line.get("least") is None for line in lines):
        return None
    return [[max(0, height - (line.get("least") or height)) for height, line in zip(heights, lines)],
            [max(0, (line.get("most") or height) - height) for height, line in zip(heights, lines)]]


def _bars(axes, lines, plot):
    series = placed(lines, plot)
    names = list(dict.fromkeys(place for chosen in series.values() for place in chosen))
    width = 0.8 / max(1, len(series))
    for index, (name, chosen) in enumerate(series.items()):
        places = [names.index(place) + (index - (len(series) - 1) / 2) * width for place in chosen]
        axes.bar(places, [line[plot.y] for line in chosen.values()], width * 0.95, yerr=_errors(list(chosen.values()), plot),
                 label=name or None, color=COLOURS[index % len(COLOURS)], error_kw={"linewidth": 0.8})
    _name_places(axes, names)


def _name_places(axes, names):
    texts = [str(name) for name in names]
    long = max(map(len, texts), default=0) > 10
    axes.set_xticks(range(len(texts)), texts, rotation=20 if long else 0, ha="right" if long else "center",
                    fontsize=7 if long else 9)


def _lines(axes, lines, plot):
    for index, (name, chosen) in enumerate(placed(lines, plot).items()):
        places = sorted(chosen)
        points = [chosen[place] for place in places]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(places, [line[plot.y] for line in points], marker="o", label=name or plot.y, color=colour)
        if plot.spread and all(line.get("least") is not None for line in points):
            axes.fill_between(places, [line["least"] for line in points], [line["most"] for line in points],
                              color=colour, alpha=0.15, linewidth=0)
        elif all("expected" in line for line in points):
            axes.plot(places, [line["expected"] for line in points], linestyle="--", label="expected", color=colour)


def _stack(axes, lines, plot):
    series = placed(lines, plot)
    names = list(dict.fromkeys(place for chosen in series.values() for place in chosen))
    below = [0.0] * len(names)
    for index, (name, chosen) in enumerate(series.items()):
        column = [chosen[place][plot.y] if place in chosen else 0.0 for place in names]
        axes.bar(range(len(names)), column, 0.7, bottom=below, label=name, color=COLOURS[index % len(COLOURS)])
        below = [a + b for a, b in zip(below, column)]
    _name_places(axes, names)


def _scatter(axes, lines, plot):
    axes.scatter([line[plot.x] for line in lines], [line[plot.y] for line in lines], s=9, color=COLOURS[0])
    most = max((max(line[plot.x], line[plot.y]) for line in lines), default=1)
    axes.plot([0, most], [0, most], color="#999999", linewidth=0.8, label="as expected")


def _gantt(axes, lines, plot):
    """Stretches from `x` to the column `end`, those of one `y` in a row."""
    rows = list(dict.fromkeys(line[plot.y] for line in lines))
    series = {}
    for line in lines:
        series.setdefault(str(line[plot.series]), []).append(line)
    for index, chosen in enumerate(series.values()):  # no legend: the rows have names
        axes.barh([rows.index(line[plot.y]) for line in chosen], [line["end"] - line[plot.x] for line in chosen],
                  left=[line[plot.x] for line in chosen], color=COLOURS[index % len(COLOURS)])
    axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    axes.invert_yaxis()


KINDS = {"bars": _bars, "lines": _lines, "stack": _stack, "scatter": _scatter, "gantt": _gantt}


def draw(report, lines, folder):
    """Writes NAME.svg and NAME.png; returns their paths."""
    import matplotlib  # pylint: disable=import-outside-toplevel

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "lever", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                                "axes.spines.right": False})
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel

    plot = report.plot
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    KINDS[plot.kind](axes, lines, plot)
    if plot.level is not None:
        axes.axhline(plot.level, color="#999999", linewidth=0.8)
    axes.set_title(report.title, fontsize=10)
    axes.set_xlabel(plot.xlabel)
    axes.set_ylabel(plot.ylabel)
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    if axes.get_legend_handles_labels()[1]:
        beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if plot.kind in ("bars", "stack") else {}
        axes.legend(fontsize=8, frameon=False, **beside)
    paths = [os.path.join(folder, report.name + ending) for ending in (".svg", ".png")]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=150, metadata={"Software": None})
    pyplot.close(figure)
    return paths
