"""Figures from rows, as a table: median, least, most, and whether what must be reached was reached."""

import statistics

from figures import FIGURES
from models import TITLES
from rows import with_failed_beside

HEADINGS = ("what", "model", "n", "median", "min", "max", "wanted", "")


def _selected(rows, figure):
    return [row for row in rows if row["benchmark"] == figure.benchmark and figure.case in ("*", row["case"])]


def _verdict(figure, values):
    """True, False, or None for a figure that nothing is asked of."""
    if figure.at_least is None and figure.at_most is None:
        return None
    if figure.at_least is not None:
        judged = min(values) if figure.worst else statistics.median(values)
        return judged >= figure.at_least
    judged = max(values) if figure.worst else statistics.median(values)
    return judged <= figure.at_most


def _wanted(figure):
    unit = f" {figure.unit}" if figure.unit else ""
    if figure.at_least is not None:
        return f">= {figure.at_least:.4g}{unit}"
    return f"<= {figure.at_most:.4g}{unit}" if figure.at_most is not None else unit.strip()


def _by_length(rows):
    """(title's end, rows) for each length of answers: what drafts well over a long text need not over a short one. Rows that
    say none belong to all."""
    lengths = sorted({row["factors"]["length"] for row in rows if row.get("factors", {}).get("length")})
    if len(lengths) < 2:
        return [("", rows)]
    return [(f", {length} tokens", [row for row in rows if row.get("factors", {}).get("length", length) == length]) for length in lengths]


def _line(figure, rows, end=""):
    if not rows:
        return None
    line = {"what": figure.title + end, "model": TITLES.get(figure.case, ""), "wanted": _wanted(figure)}
    ran = [row for row in rows if row["status"] in ("ok", "failed")]
    values = figure.values(ran if figure.with_failed else with_failed_beside(ran))
    if not values:
        reasons = [f"{row['status']}: {row['reason']}" for row in rows if row["status"] != "ok"]
        return {**line, "n": 0, "verdict": reasons[0] if reasons else "no values"}
    failed = sum(row["status"] == "failed" for row in rows)
    words = [{True: "reached", False: "MISSED", None: ""}[_verdict(figure, values)]]
    if failed:
        words.append(f"but {failed} rows failed")
    return {
        **line,
        "n": len(values),
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "verdict": ", ".join(word for word in words if word),
    }


def lines(rows):
    """One dictionary for each figure, and length of answers, of which there are rows."""
    found = [_line(figure, chosen, end) for figure in FIGURES for end, chosen in _by_length(_selected(rows, figure))]
    return [line for line in found if line is not None]


def table(rows):
    """The same as a markdown table, its columns aligned for reading as plain text."""
    cells = [list(HEADINGS)]
    for line in lines(rows):
        numbers = [f"{line[key]:.3f}" if key in line else "" for key in ("median", "min", "max")]
        cells.append([line["what"], line["model"], str(line["n"]), *numbers, line["wanted"], line["verdict"]])
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells)


def markdown(rows):
    """The table under the facts that its rows share."""
    first = rows[0]
    machine, commit = first["machine"], first["commit"]
    models = {model["sha256"]: model for row in rows for model in row.get("models", [])}
    text = [
        f"Commit {commit['hash'][:12]}{' with changes' if commit['dirty'] else ''}, {first['time']}.",
        f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['instruction_sets'])}), "
        f"{machine['memory_bytes'] / 2**30:.1f} GiB, Linux {machine['kernel']}, "
        f"{machine['disk'].get('device', 'no disk')} ({machine['disk']['filesystem']}).",
        "",
        table(rows),
        "",
        "Models:",
        "",
        *(f"- {model['name']}: {model['bytes']} bytes, SHA-256 {model['sha256']}" for model in models.values()),
    ]
    skipped = sorted({f"- {r['benchmark']}/{r['case']}: {r['reason']}" for r in rows if r["status"] == "skipped"})
    if skipped:
        text += ["", "Skipped:", "", *skipped]
    return "\n".join(text) + "\n"
