"""The tables and figures of docs/RESULTS.md: what each is made of, how, and which command makes its rows.

A report is computed from raw rows alone (docs/results/raw/). `REPORTS` at the end is the list; the functions before it
are the arithmetic, and are tested on fixed rows. Rows that failed count nowhere but where failing is the result.
"""

import dataclasses
import statistics
from typing import Callable

from rows import RATE, TASKS, round_of, task_named, task_of, whole_rounds

MIB = 1 << 20


# --- What a row says --------------------------------------------------------------------------------------------------


def factor(row, name):
    """A factor by name, also of those that follow from other fields; None where the row does not say."""
    factors = row.get("factors", {})
    if name == "strategy":
        return row["arm"]
    if name == "share":
        budget = str(factors.get("budget", ""))
        return int(budget[:-1]) if budget.endswith("%") else None
    if name == "draft":
        return row["models"][1]["name"] if len(row.get("models", [])) > 1 else "none"
    if name == "disk_gbps":
        limit = row.get("limits", {}).get("read_bytes_per_second")
        return limit / 1e9 if limit else None
    return task_of(row) if name == "task" else factors.get(name)


def value(row, name):
    found = row.get("values", {}).get(name)
    return None if found is None else float(found)


def succeeded(rows):
    return [row for row in rows if row["status"] == "ok"]


# --- Arithmetic -------------------------------------------------------------------------------------------------------


def summary(values):
    return {"n": len(values), "median": statistics.median(values), "least": min(values), "most": max(values)}


def grouped(rows, by, value_of):
    """Median, least and most of `value_of` for each combination of factors, in the order in which they come."""
    groups = {}
    for row in succeeded(rows):
        found = value_of(row)
        key = tuple(factor(row, name) for name in by)
        if found is not None and None not in key:
            groups.setdefault(key, []).append(found)
    return [{**dict(zip(by, key)), **summary(values)} for key, values in groups.items()]


def paired(rows, base, name=RATE):
    """(row, ratio of its value to that of the arm `base` in the same round), for every arm but the base."""
    bases = {round_of(row): value(row, name) for row in succeeded(rows) if row["arm"] == base}
    for row in succeeded(rows):
        own, other = value(row, name), bases.get(round_of(row))
        if row["arm"] != base and own is not None and other:
            yield row, own / other


def ratios(rows, base, by, name=RATE):
    groups = {}
    for row, ratio in paired(rows, base, name):
        key = tuple(factor(row, factor_name) for factor_name in by)
        if None not in key:
            groups.setdefault(key, []).append(ratio)
    return [{**dict(zip(by, key)), **summary(values)} for key, values in groups.items()]


def mean_over_tasks(lines, only=None):
    """The mean of the tasks' medians, as `lever bench` takes it: over all tasks that are there, or only over some."""
    chosen = [line["median"] for line in lines if only is None or line["task"] in only]
    return statistics.mean(chosen) if chosen else None


def with_means(lines, by):
    """Behind the lines of each group (their factors without the task), one with the mean over its tasks."""
    groups = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in by if name != "task"), []).append(line)
    found = []
    for group in groups.values():
        n = sum(line["n"] for line in group)
        mean = {**group[0], "task": "mean", "n": n, "median": mean_over_tasks(group), "least": None, "most": None}
        found += [*group, mean]
    return found


def best_arm(rows, begin):
    """Of the arms whose name begins so, the one with the highest mean rate over the headline's tasks: what tuning would
    choose."""
    lines = [line for line in grouped(rows, ("strategy", "task"), lambda row: value(row, RATE))]
    means = {}
    for arm in {line["strategy"] for line in lines if line["strategy"].startswith(begin)}:
        means[arm] = mean_over_tasks([line for line in lines if line["strategy"] == arm], TASKS)
    means = {arm: mean for arm, mean in means.items() if mean is not None}
    return max(means, key=means.get) if means else None


def best_of_pair(rows, above, below, name=RATE):
    """(row, ratio) of arm `above` to the best of the arms `below` in each round in which none of these is missing."""
    best, whole = {}, whole_rounds(rows, below)
    for row in succeeded(rows):
        this = round_of(row)
        if row["arm"] in below and value(row, name) and this in whole:
            best[this] = max(best.get(this, 0), value(row, name))
    for row in succeeded(rows):
        if row["arm"] == above and value(row, name) is not None and round_of(row) in best:
            yield row, value(row, name) / best[round_of(row)]


# --- Tables -----------------------------------------------------------------------------------------------------------


def by_task(rows):
    """Rates by task and strategy, their mean, and the ratio to plain decoding."""
    lines = with_means(grouped(rows, ("strategy", "task"), lambda row: value(row, RATE)), ("strategy", "task"))
    over = with_means(ratios(rows, "ar", ("strategy", "task")), ("strategy", "task"))
    found = {(line["strategy"], line["task"]): line["median"] for line in over}
    return [{**line, "over_ar": found.get((line["strategy"], line["task"]))} for line in lines]


def ablation(rows):
    """What each part is worth: its absence over the whole, by memory."""
    return with_means(ratios(rows, "lever", ("budget", "strategy", "task")), ("budget", "strategy", "task"))


def by(*names, name=RATE):
    return lambda rows: grouped(rows, names, lambda row: value(row, name))


def first_token(rows):
    """Seconds to the first token and to the end of the answer."""
    chosen = [row for row in rows if factor(row, "task") in ("dialogue", "summary")]

    def whole(row):
        return value(row, "first_token_seconds") + value(row, "decode_seconds")

    lines = []
    for what, value_of in (("first token", lambda row: value(row, "first_token_seconds")), ("whole answer", whole)):
        lines += [{**line, "what": what} for line in grouped(chosen, ("task", "strategy"), value_of)]
    return lines


STAGES = ("drafting, not hidden", "head", "computing", "waiting for flash", "else")


def stage_seconds(row):
    """Where the time of an answer goes. Computing and waiting are of the target's passes."""
    decode, tokens = value(row, "decode_seconds"), value(row, "completion_tokens")
    draft = value(row, "draft_seconds") - value(row, "draft_hidden_seconds")
    head, compute = value(row, "head_seconds"), value(row, "compute_seconds")
    rest = max(0.0, decode - draft - head - compute)
    waiting = min(rest, max(0.0, value(row, "io_seconds") - compute))
    parts = (draft, head, compute, waiting, rest - waiting)
    return {stage: part / tokens * 1e3 for stage, part in zip(STAGES, parts)}


def stages(rows):
    lines = []
    for stage in STAGES:
        found = grouped(rows, ("strategy",), lambda row, stage=stage: stage_seconds(row)[stage])
        lines += [{**line, "stage": stage} for line in found]
    return lines


def per_token(row, name):
    """Of a sum over the decoding of an answer; None where it is 0, which stands for unknown."""
    whole, tokens = value(row, name), value(row, "completion_tokens")
    return whole / tokens if whole and tokens else None


def flash_and_energy(rows):
    lines = []
    for what, name, unit in (("MiB read a token", "bytes_read", 1 / MIB), ("mJ a token", "energy_joules", 1e3)):
        def value_of(row, name=name, unit=unit):
            found = per_token(row, name)
            return None if found is None else found * unit

        found = grouped(rows, ("strategy", "task"), value_of)
        lines += [{**line, "what": what} for line in with_means(found, ("strategy", "task"))]
    return lines


def phone_ratios(rows, base, name="seconds_per_token"):
    """Rows of bench/phones.py, where time is virtual: (phone, section, share, arm) -> task -> what the case that `base`
    names (share and arm of those of a row) takes over what the row takes, a ratio for each prompt."""
    cases = {(r["phone"], r["section"], int(r["pinned_percent"]), r["arm"], task_named(r["task"]), r["prompt"]): float(r[name])
             for r in rows}
    found = {}
    for (phone, section, share, arm, task, prompt), own in cases.items():
        other = cases.get((phone, section, *base(share, arm), task, prompt))
        if other is not None:
            found.setdefault((phone, section, share, arm), {}).setdefault(task, []).append(other / own)
    return found


def mean_of_medians(by_task):
    return statistics.mean(statistics.median(values) for values in by_task.values())


def plain(share, _arm):
    return share, "ar"


def phones(rows):
    """Simulated phones: over plain decoding, and energy a token."""
    lines = []
    for (phone, section, share, arm), by_task in phone_ratios(rows, plain).items():
        energy = [float(r["energy_per_token"]) * 1e3 for r in rows
                  if (r["phone"], r["section"], int(r["pinned_percent"]), r["arm"]) == (phone, section, share, arm)]
        lines.append({"phone": phone, "section": section, "strategy": arm, "n": sum(map(len, by_task.values())),
                      "over_ar": mean_of_medians(by_task), **{task: statistics.median(v) for task, v in by_task.items()},
                      "mJ a token": statistics.median(energy)})
    return lines


def phone_shares(rows):
    """Over the share of the target in a simulated phone's memory: speed over plain decoding with the same share, over
    memory-resident plain decoding, and the energy of a token over that of the first."""
    resident = phone_ratios(rows, lambda _share, _arm: (100, "ar"))
    saved = phone_ratios(rows, plain, "energy_per_token")
    return [{"section": section, "share": share, "strategy": arm, "n": sum(map(len, by_task.values())),
             "over_ar": mean_of_medians(by_task), "over_resident": mean_of_medians(resident[case]),
             "energy": 1 / mean_of_medians(saved[case]), "curve": f"{arm} ({section})"}
            for case, by_task in phone_ratios(rows, plain).items() if case in resident
            for _phone, section, share, arm in [case]]


def phone_ablation(rows):
    """A part left out on a simulated phone: speed and energy over those of the whole."""
    def whole(share, _arm):
        return share, "lever"

    energy = phone_ratios(rows, whole, "energy_per_token")
    return [{"section": section, "share": share, "without": arm, "n": sum(map(len, by_task.values())),
             "speed": mean_of_medians(by_task), **{task: statistics.median(v) for task, v in by_task.items()},
             "energy": 1 / mean_of_medians(energy[case]), "group": f"{section}, {share} %"}
            for case, by_task in phone_ratios(rows, whole).items()
            for _phone, section, share, arm in [case] if arm not in ("lever", "ar")]


def entropy(rows):
    lines = []
    for row in succeeded(rows):
        found = row["values"]
        lines.append({
            "model": row["case"], "type": found["type"], "MiB": found["streamed_bytes"] / MIB,
            "ideal share": found["entropy_share"], "coded share": found["coded_share"],
            "decoding GB/s": found["decode_bytes_per_second"] / 1e9,
            "break-even GB/s, own core": found["breakeven_own_core"] / 1e9,
            "break-even GB/s, shared core": found["breakeven_shared_core"] / 1e9,
        })
    return lines


# --- Traces -----------------------------------------------------------------------------------------------------------


def acceptance(traces):
    """By depth: how often a candidate stood there below an accepted one, how often it was right, and how often it was
    expected to be."""
    counts = {}
    for trace in traces:
        path, nodes = trace["path"], trace["nodes"]
        for depth in range(1, len(path) + 2):
            above = 0 if depth == 1 else path[depth - 2]
            offered = [node for node in nodes if node["verified"] and node["parent"] == above]
            if not offered:
                continue
            count = counts.setdefault(depth, {"offered": 0, "right": 0, "expected": 0.0})
            count["offered"] += 1
            count["right"] += depth <= len(path)
            count["expected"] += min(1.0, sum(node["a"] for node in offered))
    return [{"depth": depth, "offered": c["offered"], "measured": c["right"] / c["offered"],
             "expected": c["expected"] / c["offered"]} for depth, c in sorted(counts.items())]


def prediction(traces):
    """Expected against measured, a line a cycle."""
    return [{"cycle": n, "strategy": t["strategy"], "expected": t["seconds_expected"], "measured": t["seconds"],
             "tokens expected": t["tokens_expected"], "tokens": t["tokens"]}
            for n, t in enumerate(traces) if t["seconds_expected"] > 0]


CYCLES_SHOWN = 12


def timeline(traces):
    """The first cycles of an answer, stage behind stage."""
    lines, now = [], 0.0
    for cycle, trace in enumerate(traces[:CYCLES_SHOWN]):
        for stage in ("draft", "pass", "head"):
            seconds = trace[stage + "_seconds"]
            lines.append({"cycle": cycle, "stage": stage, "begin": now, "end": now + seconds, "tokens": trace["tokens"]})
            now += seconds
        now = max(now, lines[-3]["begin"] + trace["seconds"])
    return lines


# --- The headline -----------------------------------------------------------------------------------------------------

PEERS = ("peer", "peer_direct", "peer_chain_8", "peer_chain_16", "peer_ngram")


def _headline(what, wanted, paper, found):
    """One line of the headline from (row, ratio) pairs. It is judged by three tasks, whatever else was measured."""
    groups = {}
    for row, ratio in found:
        if factor(row, "task") in TASKS:
            groups.setdefault(factor(row, "task"), []).append(ratio)
    mean = mean_over_tasks([{"task": task, **summary(values)} for task, values in groups.items()])
    count = sum(len(values) for values in groups.values())
    line = {"what": what, "wanted": wanted, "paper": paper, "n": count, "mean of three": mean}
    line.update({task: statistics.median(groups[task]) if task in groups else None for task in TASKS})
    missing = [task for task in TASKS if task not in groups]
    line["verdict"] = "not measured" if mean is None else "reached" if mean >= wanted else "missed"
    if mean is not None and missing:
        line["verdict"] += ", without " + " and ".join(missing)
    return line


def _over(rows, base):
    return [(row, ratio) for row, ratio in paired(rows, base) if row["arm"] == "lever"] if base else []


def headline(rows):
    deep = [row for row in rows if row.get("models") and "deep" in row["models"][0]["name"]]
    pair = [row for row in rows if row not in deep]

    def own(chosen):
        return [row for row in chosen if row["benchmark"] in ("bench", "equal_ram")]

    def peers(chosen):
        return [row for row in chosen if row["benchmark"] == "equal_memory"]

    chain = best_arm(own(deep), "chain")
    return [
        _headline("4 GB, equal --ram of 1.2G: lever / plain", 7, 2.93, _over(own(deep), "ar")),
        _headline(f"the same: lever / chain ({chain or 'none measured'})", 1.4, 1.50, _over(own(deep), chain)),
        _headline("4 GB, cgroup of 1.2G: lever / llama.cpp, mmap, plain", 12, None, _over(peers(deep), "peer")),
        _headline("the same: lever / llama.cpp's best", 4, None, best_of_pair(peers(deep), "lever", PEERS)),
        _headline("lever in 1.2G / llama.cpp with all 4 GB in memory, plain", 0.6, 1 / 1.2, _over(peers(deep), "peer_resident")),
        _headline("default pair, equal --ram of 900M: lever / plain", 2.2, 2.93, _over(own(pair), "ar")),
        _headline("the same in a cgroup: lever / llama.cpp's best", 3.5, None, best_of_pair(peers(pair), "lever", PEERS)),
    ]


# --- The list ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Plot:
    kind: str  # bars, lines, stack, scatter, gantt
    x: str
    y: str
    series: str = ""
    xlabel: str = ""
    ylabel: str = ""
    log_x: bool = False
    only: tuple = ()  # (column, value): the lines that are drawn
    level: float = None  # of a line across, to compare with


@dataclasses.dataclass
class Report:
    name: str
    title: str
    raw: str  # patterns of the files below docs/results/raw
    table: Callable
    command: str  # what makes the rows; {raw} is the folder
    plot: Plot = None
    traces: bool = False


WORK = "~/.cache/lever/bench"
BENCH = f"build/release/lever bench -m {WORK}/target-q4_0.lvr -d {WORK}/draft-q4_0.lvr"
PHONES = (f"python3 bench/phones.py --lever build/release/lever -m {WORK}/target-q4_0.lvr -d {WORK}/draft-q4_0.lvr "
          "--out {raw}")
RUN = "python3 bench/run.py"
THREE = "--tasks code,maths,dialogue"
TOKENS = "tokens a second"

REPORTS = [
    Report("headline", "Equal memory", "headline*.jsonl", headline,
           f"{RUN} --tokens 192 --repetitions 3 --prompts FILES --rows {{raw}}/headline-deep.jsonl equal_ram/deep/1.2G; "
           f"{RUN} --tokens 192 --repetitions 6 --prompts FILES --rows {{raw}}/headline-pair.jsonl equal_ram/q4_0/900M; "
           f"{RUN} --tokens 64 --repetitions 3 --prompts FILES --rows {{raw}}/headline-peers.jsonl equal_memory"),
    Report("speed", "Speed by task and strategy, equal memory (7/8 of the target)", "speed.jsonl", by_task,
           f"{BENCH} --out {{raw}}/speed.jsonl --trace {{raw}}/trace.jsonl; gzip -n {{raw}}/trace.jsonl",
           Plot("bars", "task", "median", "strategy", "", TOKENS)),
    Report("ablation", "Each part left out, over the whole", "ablation*.jsonl pruning.jsonl", ablation,
           f"{BENCH} --budgets 0%,900M --strategies lever,lever+fixed:16,lever+no-ahead,lever+no-lookup,lever+head:demand,"
           f"lever+paper {THREE} --each 1 --out {{raw}}/ablation.jsonl; "
           f"{BENCH} --budgets 100% --strategies lever,lever+no-lookup --tasks code,editing,summary --each 1 --repetitions 2 "
           "--out {raw}/ablation-lookup.jsonl; "
           f"{BENCH} --budgets 50%,100% --strategies lever,lever+no-prune {THREE} --each 2 --out {{raw}}/pruning.jsonl",
           Plot("bars", "strategy", "median", "budget", "", "speed over the whole", level=1)),
    Report("budget", "Share of the target's layers in memory", "budget.jsonl", by("share", "strategy"),
           f"{BENCH} --budgets 0%,25%,50%,75%,100% --strategies lever,chain:12,ar {THREE} --each 1 --lengths 64 --out {{raw}}/budget.jsonl",
           Plot("lines", "share", "median", "strategy", "percent of the layers in memory", TOKENS)),
    Report("drafts", "Quality of the draft", "drafts-*.jsonl", by("draft", "strategy"),
           f"for d in draft-q8_0 draft-q4_0 draft-q2_k draft-short; do build/release/lever bench -m {WORK}/target-q4_0.lvr "
           f"-d {WORK}/$d.lvr --budgets 0% --strategies lever,chain:12,ar {THREE} --each 1 --lengths 64 --out {{raw}}/drafts-$d.jsonl; done",
           Plot("bars", "draft", "median", "strategy", "", TOKENS)),
    Report("length", "Length of the answer", "length.jsonl", by("length", "strategy"),
           f"{BENCH} --budgets 900M --strategies lever,chain:12,ar --lengths 32,64,128,256,512,1024 --tasks code,dialogue --each 1 "
           "--out {raw}/length.jsonl", Plot("lines", "length", "median", "strategy", "tokens of the answer", TOKENS, log_x=True)),
    Report("temperature", "Temperature", "temperature.jsonl", by("temperature", "strategy"),
           f"{BENCH} --budgets 0% --strategies lever,chain:12,ar --temps 0,0.4,0.8,1.2 --tasks code,dialogue --each 1 --lengths 64 "
           "--out {raw}/temperature.jsonl", Plot("lines", "temperature", "median", "strategy", "temperature", TOKENS)),
    Report("disk", "Speed of the disk", "disk-*.jsonl", by("disk_gbps", "strategy"),
           f"for s in 200 1000 2500; do {BENCH} --budgets 900M --strategies lever,chain:12,ar --tasks code,dialogue --each 1 --lengths 64 "
           "--disk-mbps $s --out {raw}/disk-$s.jsonl; done   (SD card 0.2, UFS 3.1 1 to 1.5, UFS 4.0 2.5)",
           Plot("lines", "disk_gbps", "median", "strategy", "GB/s", TOKENS, log_x=True)),
    Report("first-token", "Seconds to the first token and to the whole answer", "speed.jsonl", first_token,
           "as speed", Plot("bars", "strategy", "median", "what", "", "seconds")),
    Report("stages", "Where the time of a token goes", "speed.jsonl", stages, "as speed",
           Plot("stack", "strategy", "median", "stage", "", "ms a token")),
    Report("timeline", "The first cycles of an answer", "trace.jsonl*", timeline, "as speed",
           Plot("gantt", "begin", "cycle", "stage", "seconds", "cycle"), traces=True),
    Report("phones", "Simulated phones", "phones-runs.csv", phones,
           f"{PHONES} runs --phones oneplus12 magicv5 honor500pro oneplus12:app magicv5:app honor500pro:app --per-task 1 --tokens 192",
           Plot("bars", "phone", "over_ar", "strategy", "", "speed over plain decoding", level=1)),
    Report("phones-shares", "Simulated OnePlus 12: share of the target in memory", "phones-shares.csv", phone_shares,
           f"{PHONES} shares --phones oneplus12 oneplus12:app --per-task 1 --tokens 192",
           Plot("lines", "share", "over_resident", "curve", "percent of the layers in memory", "speed over memory-resident", level=1)),
    Report("phones-ablation", "Simulated OnePlus 12: each part left out, over the whole", "phones-ablation.csv", phone_ablation,
           f"{PHONES} ablation --phones oneplus12 oneplus12:app --per-task 1 --tokens 192",
           Plot("bars", "without", "speed", "group", "", "speed over the whole", level=1)),
    Report("acceptance", "Acceptance by depth", "trace.jsonl*", acceptance, "as speed",
           Plot("lines", "depth", "measured", "", "depth in the tree", "share that was right"), traces=True),
    Report("prediction", "Expected and measured time of a cycle", "trace.jsonl*", prediction, "as speed",
           Plot("scatter", "expected", "measured", "", "seconds expected", "seconds measured"), traces=True),
    Report("flash", "Bytes read and energy", "speed.jsonl", flash_and_energy, "as speed",
           Plot("bars", "task", "median", "strategy", "", "MiB read a token", only=("what", "MiB read a token"))),
    Report("entropy", "Could the streamed bytes shrink?", "entropy.jsonl", entropy,
           f"python3 bench/entropy.py {WORK}/target-q4_0.gguf {WORK}/draft-q8_0.gguf target.gguf small.gguf --out {{raw}}/entropy.jsonl",
           Plot("bars", "type", "coded share", "", "", "share of the bytes that is left")),
]
