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


def _series(lines, plot):
    """{name of a series: [lines]}, in the order in which they come."""
    found = {}
    for line in lines:
        if line.get(plot.y) is not None:
            found.setdefault(str(line.get(plot.series, "")), []).append(line)
    return found


def _bars(axes, lines, plot):
    names = list(dict.fromkeys(str(line[plot.x]) for line in lines))
    series = _series(lines, plot)
    width = 0.8 / max(1, len(series))
    for index, (name, chosen) in enumerate(series.items()):
        # Several lines at one place (of tasks, say) are told by their mean over the tasks, where there is one.
        at = {str(line[plot.x]): line for line in chosen if line.get("task") in (None, "mean") or plot.x == "task"}
        at = at or {str(line[plot.x]): line for line in chosen}
        places = [names.index(key) + (index - (len(series) - 1) / 2) * width for key in at]
        heights = [line[plot.y] for line in at.values()]
        errors = [[max(0, h - (line.get("least") or h)) for h, line in zip(heights, at.values())],
                  [max(0, (line.get("most") or h) - h) for h, line in zip(heights, at.values())]]
        axes.bar(places, heights, width * 0.95, yerr=errors, label=name or None, color=COLOURS[index % len(COLOURS)],
                 error_kw={"linewidth": 0.8})
    axes.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names), default=0) > 10 else 0, ha="right"
                    if max(map(len, names), default=0) > 10 else "center")


def _lines(axes, lines, plot):
    for index, (name, chosen) in enumerate(_series(lines, plot).items()):
        chosen = sorted(chosen, key=lambda line: line[plot.x])
        colour = COLOURS[index % len(COLOURS)]
        places = [line[plot.x] for line in chosen]
        axes.plot(places, [line[plot.y] for line in chosen], marker="o", label=name or plot.y, color=colour)
        if all(line.get("least") is not None for line in chosen):
            axes.fill_between(places, [line["least"] for line in chosen], [line["most"] for line in chosen],
                              color=colour, alpha=0.15, linewidth=0)
        elif all("expected" in line for line in chosen):
            axes.plot(places, [line["expected"] for line in chosen], linestyle="--", label="expected", color=colour)


def _stack(axes, lines, plot):
    names = list(dict.fromkeys(str(line[plot.x]) for line in lines))
    below = [0.0] * len(names)
    for index, (name, chosen) in enumerate(_series(lines, plot).items()):
        heights = {str(line[plot.x]): line[plot.y] for line in chosen}
        column = [heights.get(key, 0.0) for key in names]
        axes.bar(names, column, 0.7, bottom=below, label=name, color=COLOURS[index % len(COLOURS)])
        below = [a + b for a, b in zip(below, column)]


def _scatter(axes, lines, plot):
    for index, (name, chosen) in enumerate(_series(lines, plot).items()):
        axes.scatter([line[plot.x] for line in chosen], [line[plot.y] for line in chosen], s=9, label=name or None,
                     color=COLOURS[index % len(COLOURS)])
    most = max((max(line[plot.x], line[plot.y]) for line in lines), default=1)
    axes.plot([0, most], [0, most], color="#999999", linewidth=0.8, label="as expected")


def _gantt(axes, lines, plot):
    for index, (name, chosen) in enumerate(_series(lines, plot).items()):
        axes.barh([line[plot.y] for line in chosen], [line["end"] - line["begin"] for line in chosen],
                  left=[line["begin"] for line in chosen], label=name, color=COLOURS[index % len(COLOURS)])
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
    if plot.only:
        lines = [line for line in lines if line[plot.only[0]] == plot.only[1]]
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
        axes.legend(fontsize=8, frameon=False)
    paths = [os.path.join(folder, report.name + ending) for ending in (".svg", ".png")]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=150, metadata={"Software": None})
    pyplot.close(figure)
    return paths
