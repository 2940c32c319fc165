#!/usr/bin/env python3
"""Figures of the simulated phones, docs/PHONES.md: rows of CSV, a table of ratios, a curve as SVG.

    bench/phones.py model                  the timing model at assumed tokens a cycle (bench_phones); no models are read
    bench/phones.py runs -m T -d D         real tokens and decisions: lever run --phone, strategies x tasks x phones
    bench/phones.py shares -m T -d D       the same over the share of the target that stays in memory, one phone
    bench/phones.py ablation -m T -d D     each part left out, with nothing and with everything in memory, one phone
    bench/phones.py table FILE.csv         the ratios of rows that are there

Time is virtual: how busy this machine is changes nothing. Plain decoding takes the same time for every token, so a few
tell it.
"""

import argparse
import collections
import concurrent.futures
import csv
import json
import os
import statistics
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
PHONES = ("oneplus12", "magicv5", "honor500pro")
SHAPES = "llama-3.1-8b-q4_0,llama-3.2-1b-q4_0"
TASKS = ("code", "maths", "dialogue")
ARMS = {
    "ar": ["--strategy", "ar"],
    "chain": ["--strategy", "chain", "--no-ahead", "--no-lookup"],
    "edge": ["--strategy", "edge"],
    "paper": ["--paper"],
    "lever": [],
}
# A part left out, by the name of its arm; what the parts are stands in docs/PHONES.md.
ABLATION = {
    "lever": [],
    "no gain/cost": ["--tree", "fixed:16"],
    "no pruning": ["--no-prune"],
    "no ahead": ["--no-ahead"],
    "no lookup": ["--no-lookup"],
    "head of all rows": ["--head", "all"],
    "draft on cores": ["--phone-npu", "target"],
    "all on NPU": ["--phone-npu", "both"],
    "no NPU": ["--phone-npu", "none"],
}
ABLATION_SHARES = (0, 100)
ALL_ARMS = {**ARMS, **ABLATION}
PLAIN_TOKENS = 8
SHARES = (0, 25, 50, 75, 90, 100)
FIELDS = ("phone", "section", "target", "draft", "pinned_percent", "arm", "task", "prompt", "tokens", "cycles",
          "tokens_per_cycle", "seconds_per_token", "energy_per_token", "draft_seconds", "draft_hidden_seconds",
          "io_seconds", "compute_seconds", "head_seconds", "nodes_verified", "nodes_padded", "temperature", "speed")


def read_prompts(paths):
    """task -> prompts: those of the project, or of files of JSON lines that are named after their task."""
    prompts = collections.defaultdict(list)
    if not paths:
        with open(os.path.join(FOLDER, "prompts.jsonl"), encoding="utf-8") as file:
            for line in filter(str.strip, file):
                one = json.loads(line)
                if one["category"] in TASKS:
                    prompts[one["category"]].append(one["prompt"])
    for path in paths or []:
        task = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as file:
            prompts[task] += [json.loads(line)["prompt"] for line in filter(str.strip, file)]
    return prompts


def measure(options, phone, percent, arm, task, index, prompt):
    tokens = PLAIN_TOKENS if arm == "ar" else options.tokens
    command = [options.lever, "run", "-m", options.model, "-d", options.draft, "--phone", phone, "--as", options.shapes,
               "--target-ram", str(percent), "--temp", "0", "-n", str(tokens), "--json", "--quiet", *ALL_ARMS[arm], prompt]
    threads = {} if options.jobs == 1 else {"LEVER_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **threads})
    answer = json.loads(done.stdout)
    counted = answer["completion_tokens"] - 1  # the first token comes from the prompt's pass
    simulated = answer["phone"]
    row = {key: answer[key] for key in FIELDS if key in answer}
    row.update(phone=simulated["name"], section=simulated["section"], target=simulated["target"], draft=simulated["draft"],
               pinned_percent=percent, arm=arm, task=task, prompt=index, tokens=counted,
               tokens_per_cycle=counted / answer["cycles"], seconds_per_token=answer["decode_seconds"] / counted,
               temperature=simulated["temperature"], speed=simulated["speed"])
    return row


def write_rows(path, rows):
    """`rows` may be a generator: each is written when it is there."""
    kept = []
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
            file.flush()
            kept.append(row)
            print(f"  {row['phone']:<34} {row['section']:<5} {row['pinned_percent']:>3} %  {row['arm']:<6} {row['task']:<9}"
                  f" {row['tokens_per_cycle']:6.2f} tokens a cycle {1e3 * row['seconds_per_token']:8.1f} ms a token",
                  file=sys.stderr, flush=True)
    return kept


def run_all(options, phones, shares, arms):
    prompts = read_prompts(options.prompts)
    cases = [(phone, percent, arm, task, index, given[index]) for index in range(options.skip, options.skip + options.per_task)
             for phone in phones for percent in shares for task, given in prompts.items() for arm in arms]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(lambda case: measure(options, *case), cases)


def mean_of_tasks(rows, key):
    """(phone, section, share, arm) -> the mean over tasks of the mean over prompts."""
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        values[row["phone"], row["section"], int(row["pinned_percent"]), row["arm"]][row["task"]].append(float(row[key]))
    return {case: statistics.mean(statistics.mean(v) for v in tasks.values()) for case, tasks in values.items()}


def print_table(rows):
    """Each arm over plain decoding with the same share in memory: of each phone and task, then the means of these ratios."""
    by_task = collections.defaultdict(list)
    for row in rows:
        key = (row["phone"], row["section"], int(row["pinned_percent"]), row["task"], row["arm"])
        by_task[key].append((float(row["seconds_per_token"]), float(row["energy_per_token"]),
                             float(row["tokens_per_cycle"])))
    mean = {key: [statistics.mean(part) for part in zip(*values)] for key, values in by_task.items()}
    groups = sorted({key[:3] for key in mean})
    tasks = sorted({key[3] for key in mean})
    print("phone, section, share pinned | task | arm: ms a token, tokens a cycle, over ar, energy / ar")
    totals = collections.defaultdict(list)
    for group in groups:
        for task in tasks:
            plain = mean.get((*group, task, "ar"))
            for arm in ALL_ARMS:
                found = mean.get((*group, task, arm))
                if not found or not plain:
                    continue
                gain, energy = plain[0] / found[0], found[1] / plain[1]
                totals[group[1], group[2], arm].append((gain, energy, found[2]))
                totals[group[1], group[2], arm, task].append((gain, energy, found[2]))
                print(f"{group[0]}, {group[1]}, {group[2]} % | {task} | {arm}: {1e3 * found[0]:.0f}, {found[2]:.2f}, "
                      f"{gain:.2f}, {energy:.2f}")
    print("\nmean over phones and tasks: over ar, energy / ar, tokens a cycle")
    for key, values in totals.items():
        gain, energy, tokens = (statistics.mean(part) for part in zip(*values))
        print(f"{' '.join(map(str, key))}: {gain:.2f}, {energy:.2f}, {tokens:.2f}")


# --- The curve -------------------------------------------------------------------------------------------------------

COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#d98c1f", "#555555")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 40, 210, 50


def draw(path, title, lines):
    """`lines`: name -> [(share in percent, speed / speed of plain decoding with all in memory)]."""
    most = max(1.0, max(y for points in lines.values() for _, y in points))
    top = 0.25 * (int(most / 0.25) + 1)
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x, y):
        return LEFT + plot_width * x / 100, TOP + plot_height * (1 - y / top)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="22" font-size="14">{title}</text>']
    for i in range(int(top / 0.25) + 1):
        x, y = place(0, i * 0.25)
        strong = "#888" if i == 4 else "#ddd"
        parts.append(f'<line x1="{x}" y1="{y:.1f}" x2="{x + plot_width}" y2="{y:.1f}" stroke="{strong}"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">{i * 0.25:g}</text>')
    for share in range(0, 101, 25):
        x, y = place(share, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{share} %</text>')
    parts.append(f'<text x="{LEFT + plot_width / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
                 "share of the target's layers in memory</text>")
    for i, (name, points) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        corners = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = TOP + 14 + 20 * i
        parts.append(f'<line x1="{WIDTH - RIGHT + 12}" y1="{y - 4}" x2="{WIDTH - RIGHT + 34}" y2="{y - 4}" '
                     f'stroke="{colour}" stroke-width="2"/><text x="{WIDTH - RIGHT + 40}" y="{y}">{name}</text>')
    parts.append("</svg>\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))


def run_model(options):
    program = os.path.join(options.programs or os.path.dirname(options.lever), "bench_phones")
    text = subprocess.run([program, "--as", options.shapes], check=True, capture_output=True, text=True).stdout
    with open(os.path.join(options.out, "phones-model.csv"), "w", encoding="utf-8") as file:
        file.write(text)
    rows = list(csv.DictReader(text.splitlines()))
    for section in ("root", "app"):
        phones = [f"{phone}:{section}" for phone in PHONES]
        lines = collections.defaultdict(list)
        for row in rows:
            if row["phone"] in phones:
                lines[row["method"], int(row["pinned_percent"])].append(1 / float(row["over_resident"]))
        curves = collections.defaultdict(list)
        for (method, percent), values in lines.items():
            curves[method].append((percent, statistics.mean(values)))
        draw(os.path.join(options.out, f"phones-model-{section}.svg"),
             f"Speed / memory-resident, model, mean of three phones ({section})", curves)
        at_zero = {method: statistics.mean(float(r["seconds_per_token"]) / float(s["seconds_per_token"])
                                           for r in rows for s in rows
                                           if r["phone"] == s["phone"] and r["phone"] in phones
                                           and r["pinned_percent"] == s["pinned_percent"] == "0"
                                           and r["method"] == method and s["method"] == "lever")
                   for method in ("ar", "chain", "edge")}
        print(section + ": lever over " + ", ".join(f"{method} {gain:.2f}" for method, gain in at_zero.items()))


def run_shares(options):
    path = os.path.join(options.out, "phones-shares.csv")
    rows = write_rows(path, run_all(options, options.phones or PHONES[:1], SHARES, ("ar", "paper", "lever")))
    print_table(rows)
    seconds = mean_of_tasks(rows, "seconds_per_token")
    curves = collections.defaultdict(list)
    for (phone, section, percent, arm), value in sorted(seconds.items()):
        curves[f"{arm} ({section})"].append((percent, seconds[phone, section, 100, "ar"] / value))
    draw(os.path.join(options.out, "phones-shares.svg"), f"Speed / memory-resident, own trees: {rows[0]['phone']}", curves)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("model", "runs", "shares", "ablation", "table"))
    parser.add_argument("files", nargs="*", metavar="FILE", help="rows for the table")
    parser.add_argument("--lever", default="build/release/lever", help="the command (default %(default)s)")
    parser.add_argument("--programs", help="folder of bench_phones (default: beside lever)")
    parser.add_argument("-m", "--model", help="the target")
    parser.add_argument("-d", "--draft", help="the draft")
    parser.add_argument("--as", dest="shapes", default=SHAPES, help="sizes to simulate (default %(default)s)")
    parser.add_argument("--phones", nargs="+", metavar="PHONE", help="NAME[:SECTION] (default: all three, as root)")
    parser.add_argument("--prompts", nargs="+", metavar="FILE", help="JSON lines, named after their task")
    parser.add_argument("--per-task", type=int, default=2, help="prompts of each task (default %(default)s)")
    parser.add_argument("--skip", type=int, default=0, help="so many prompts of each task, to go on (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="of each answer (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="answers at a time, each with a thread then (default %(default)s)")
    parser.add_argument("--out", default="build/bench", help="folder for rows and curves (default %(default)s)")
    options = parser.parse_args()
    options.lever = os.path.abspath(options.lever)
    os.makedirs(options.out, exist_ok=True)
    if options.what == "model":
        run_model(options)
    elif options.what == "table":
        rows = []
        for path in options.files:
            with open(path, encoding="utf-8") as file:
                rows += list(csv.DictReader(file))
        print_table(rows)
    elif not options.model or not options.draft:
        parser.error("-m and -d are wanted: real models give the tokens")
    elif options.what == "runs":
        path = os.path.join(options.out, "phones-runs.csv")
        print_table(write_rows(path, run_all(options, options.phones or PHONES, (0,), ARMS)))
    elif options.what == "ablation":
        path = os.path.join(options.out, "phones-ablation.csv")
        print_table(write_rows(path, run_all(options, options.phones or PHONES[:1], ABLATION_SHARES, ("ar", *ABLATION))))
    else:
        run_shares(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
