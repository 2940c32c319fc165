#!/usr/bin/env python3
"""Makes the tables and figures of docs/RESULTS.md from raw rows, each by one command.

    bench/report.py --list                 what there is, and which command makes the rows
    bench/report.py speed                  docs/results/speed.csv, .svg and .png from docs/results/raw/
    bench/report.py                        all whose rows are there
    bench/report.py speed ROWS.jsonl...    from other rows
    bench/report.py --update               all, and put into the pages that have marks for them
    bench/report.py --no-plots             tables alone: nothing but Python is needed
"""

import argparse
import csv
import glob
import gzip
import io
import json
import os
import sys

sys.dont_write_bytecode = True

import plots
import rows
from reports import REPORTS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ("docs/RESULTS.md", "docs/PHONES.md", "README.md")  # in which tables stand between marks


def files_of(report, raw):
    return sorted(path for pattern in report.raw.split() for path in glob.glob(os.path.join(raw, pattern)))


def _open(path):
    return (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8")


def read_cycles(paths):
    """The cycles of traces, as `lever run --trace` or `lever bench --trace` writes them: of one answer after the other."""
    found = []
    for path in paths:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):  # a run that was broken off may have left half a line
                    continue
                try:
                    cycle = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: not a cycle: {error}") from None
                found.append(cycle.get("trace", cycle))
    return [cycle for cycle in found if cycle["strategy"] == "lever"]


def read_events(paths):
    """The events of one timeline (`lever run --trace FILE --trace-format chrome`): times of several share no clock."""
    if len(paths) > 1:
        raise ValueError(f"one timeline is shown, there are {len(paths)}: {', '.join(paths)}")
    with _open(paths[0]) as file:
        return json.load(file)


def newest(all_rows):
    """Rows that were measured again count once: the last one of an id that went well, else the last one."""
    by_id = {}
    for row in all_rows:
        key = row.get("id") or id(row)
        if key not in by_id or row["status"] == "ok" or by_id[key]["status"] != "ok":
            by_id[key] = row
    return list(by_id.values())


def read_csv(paths):
    found = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            found += csv.DictReader(file)
    return found


def read_rows(paths):
    """Rows, and the lines of CSVs among them."""
    lines = [path for path in paths if path.endswith(".csv")]
    return newest(rows.read([path for path in paths if path not in lines])) + read_csv(lines)


READERS = {"rows": read_rows, "cycles": read_cycles, "events": read_events}


def make_table(report, paths):
    return report.table(READERS[report.reads](paths))


def columns_of(lines):
    return list(dict.fromkeys(key for line in lines for key in line))


def cell(value):
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def csv_text(lines):
    columns, text = columns_of(lines), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if line.get(c) is None else line.get(c) for c in columns] for line in lines])
    return text.getvalue()


LINES_SHOWN = 60


def markdown(lines):
    columns = columns_of(lines)
    cells = [columns, ["---"] * len(columns)]
    cells += [[cell(line.get(column)) for column in columns] for line in lines[:LINES_SHOWN]]
    text = "\n".join("| " + " | ".join(row) + " |" for row in cells)
    return text + (f"\n\n{len(lines) - LINES_SHOWN} more lines in the CSV." if len(lines) > LINES_SHOWN else "")


def command_of(report, raw):
    """What makes the rows of a report."""
    command = report.command
    if command.startswith("as "):
        command = next(r for r in REPORTS if r.name == command.removeprefix("as ")).command
    return command.replace("{raw}", os.path.relpath(raw, ROOT) if raw.startswith(ROOT) else raw)


def missing(report, raw):
    return f"no rows ({report.raw}); they are made by: {command_of(report, raw)}"


def make(report, paths, options):
    lines = make_table(report, paths)
    if not lines:
        return None
    path = os.path.join(options.out, report.name + ".csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(csv_text(lines))
    made = [path]
    if report.plot and not options.no_plots:
        made += plots.draw(report, lines, options.out)
    print(f"{report.name}: {len(lines)} lines from {', '.join(map(os.path.basename, paths))}: {', '.join(made)}")
    return lines


def between(text, mark, body):
    """Replaces what stands between <!-- begin MARK --> and <!-- end MARK -->, where these are."""
    begin, end = f"<!-- begin {mark} -->", f"<!-- end {mark} -->"
    if begin not in text or end not in text:
        return text
    head, rest = text.split(begin, 1)
    return head + begin + "\n" + (body + "\n" if body else "") + end + rest.split(end, 1)[1]


def page_with(page, text, tables, options):
    """The text of a page below the root with the tables that were made, and their figures, between their marks: `NAME` and
    `NAME figure`."""
    for report in (report for report in REPORTS if report.name in tables):
        lines = tables[report.name]
        body = markdown(lines) if lines else ""
        if not lines and page.startswith("docs"):
            body = "Not measured yet. Its rows are made by\n\n    " + command_of(report, options.raw).replace("; ", "\n    ")
        text = between(text, report.name, body)
        figure = os.path.join(options.out, report.name + ".svg")
        shown = os.path.relpath(figure, os.path.dirname(os.path.join(ROOT, page)))
        text = between(text, report.name + " figure", f"![{report.title}]({shown})" if lines and os.path.exists(figure) else "")
    return text


def update(tables, options):
    for page in PAGES:
        path = os.path.join(ROOT, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(page_with(page, text, tables, options))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="of the report (default: all)")
    parser.add_argument("rows", nargs="*", metavar="ROWS", help="files to take instead of those in --raw")
    parser.add_argument("--list", action="store_true", help="list the reports and end")
    parser.add_argument("--raw", default=os.path.join(ROOT, "docs", "results", "raw"), help="folder of the rows")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "results"), help="folder of tables and figures")
    parser.add_argument("--no-plots", action="store_true", help="CSV alone")
    parser.add_argument("--update", action="store_true", help=f"put tables and figures into {', '.join(PAGES)}")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.list:
        for report in REPORTS:
            print(f"{report.name:<12} {report.title}\n    {command_of(report, options.raw)}")
        return 0
    chosen = [report for report in REPORTS if options.name in (None, report.name)]
    if not chosen:
        sys.exit(f"report.py: there is no report '{options.name}'; --list shows them")
    if not options.no_plots:
        try:
            plots.with_matplotlib()
        except OSError as error:
            sys.exit(f"report.py: {error}")
    os.makedirs(options.out, exist_ok=True)
    tables, code = {}, 0
    for report in chosen:
        paths = options.rows or files_of(report, options.raw)
        try:
            tables[report.name] = make(report, paths, options) if paths else None
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"report.py: {report.name}: {type(error).__name__}: {error}")
        if not tables[report.name]:
            print(f"{report.name}: {missing(report, options.raw)}")
            code = 1 if options.name else code
    if options.update:
        update(tables, options)
    return code


if __name__ == "__main__":
    sys.exit(main())
