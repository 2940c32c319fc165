"""The tables and figures of docs/RESULTS.md: what each is made of, how, and which command makes its rows.

A report is computed from raw rows alone (docs/results/raw/). `REPORTS` at the end is the list; the functions before it
make the smaller tables, each from the rows of one file. What a value is, a ratio and a mean: arithmetic.py.
"""

import dataclasses
from typing import Callable

import beside
import headline
import simulated
import traces
from arithmetic import (add_mean, against, factor, grouped, paired, per_token, same_answer, succeeded, table, value,
                        values_of, with_means, with_outcomes)

MIB = 1 << 20


# --- Tables -----------------------------------------------------------------------------------------------------------


def speed(rows):
    """Rates by task and strategy, their mean, and the ratio to plain decoding."""
    names = ("strategy", "task")
    over = {tuple(line[name] for name in names): line["median"] for line in with_means(grouped(paired(rows, "ar"), names), names)}
    lines = with_means(grouped(values_of(rows), names), names)
    return [{**line, "over plain": over.get((line["strategy"], line["task"]))} for line in lines]


def ablation(rows):
    """What each part is worth: its absence over the whole, by memory; of plain decoding, over plain decoding."""
    names = ("budget", "strategy", "task")
    plain_rows = [row for row in rows if row["arm"].split("+")[0] == "ar"]
    others = [row for row in rows if row["arm"].split("+")[0] != "ar"]
    return [line for chosen, whole in ((others, "lever"), (plain_rows, "ar"))
            for line in with_means(grouped(paired(chosen, whole), names), names)]


def rates_by(*names):
    return lambda rows: table(values_of(rows), names)


def budget(rows):
    """Rates by the share in memory, over plain decoding with the same share, and over it with everything in memory."""
    names = ("share", "strategy")
    resident = [row for row in rows if row["arm"] == "ar" and factor(row, "share") == 100]
    lines = add_mean(table(values_of(rows), names), names, "over plain", paired(rows, "ar"))
    return add_mean(lines, names, "over resident", against(rows, resident, same_answer))


def drafts(rows):
    """Rates by draft; of one that is refused, why."""
    names = ("draft", "strategy")
    return with_outcomes(table(values_of(rows), names), rows, names)


def first_token(rows):
    """Seconds to the first token and to the end of the answer."""
    chosen = [row for row in rows if factor(row, "task") in ("dialogue", "summary")]

    def whole(row):
        return value(row, "first_token_seconds") + value(row, "decode_seconds")

    lines = []
    for what, seconds in (("first token", "first_token_seconds"), ("whole answer", whole)):
        lines += [{"what": what, **line} for line in grouped(values_of(chosen, seconds), ("task", "strategy"))]
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
        found = table(values_of(rows, lambda row, stage=stage: stage_seconds(row)[stage]), ("strategy",))
        lines += [{"stage": stage, **line} for line in found]
    return lines


def flash_and_energy(rows):
    lines, names = [], ("strategy", "task")
    for what, name, unit in (("MiB read a token", "bytes_read", 1 / MIB), ("mJ a token", "energy_joules", 1e3)):
        found = [(row, own * unit) for row, own in values_of(rows, per_token(name))]
        lines += [{"what": what, **line} for line in with_means(grouped(found, names), names)]
    return lines


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


# --- The list ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Plot:
    """`x` and `series` are columns, or several whose texts make one. Two lines at one place of a series are an error."""

    kind: str  # bars, lines, stack, scatter, gantt
    x: str
    y: str
    series: str = ""
    xlabel: str = ""
    ylabel: str = ""
    log_x: bool = False
    only: tuple = ()  # (column, value): the lines that are drawn
    level: float = None  # of a line across, to compare with
    spread: bool = True  # the columns `least` and `most`, where they are there, are those of `y`


@dataclasses.dataclass
class Report:
    name: str
    title: str
    raw: str  # patterns of the files below docs/results/raw
    table: Callable
    command: str  # what makes the rows; {raw} is the folder
    plot: Plot = None
    reads: str = "rows"  # or cycles (of --trace), or events (of --trace-format chrome)


WORK = "~/.cache/lever/bench"
LEVER, TARGET, DRAFT = "build/release/lever", f"{WORK}/target-q4_0.lvr", f"{WORK}/draft-q4_0.lvr"
PAIR = f"-m {TARGET} -d {DRAFT}"
BENCH = f"{LEVER} bench {PAIR}"
PHONES = f"python3 bench/phones.py --lever {LEVER} {PAIR} --out {{raw}}"
RUN = "python3 bench/run.py"
THREE = "--tasks code,maths,dialogue"
TOKENS, RESIDENT = "tokens a second", "speed over memory-resident"
TIMELINE = Plot("gantt", "begin", "track", "what", "ms", "")

REPORTS = [
    Report("headline", "Equal memory", "headline*.jsonl chain*.jsonl", headline.headline,
           f"{RUN} --tokens 192 --repetitions 3 --prompts FILES --rows {{raw}}/headline-deep.jsonl equal_ram/deep/1.2G; "
           f"{RUN} --tokens 192 --repetitions 6 --prompts FILES --rows {{raw}}/headline-pair.jsonl equal_ram/q4_0/900M; "
           f"{RUN} --tokens 64 --repetitions 3 --prompts FILES --rows {{raw}}/headline-peers.jsonl equal_memory"),
    Report("beside", "Beside the paper", "beside*.jsonl phones-runs.csv", beside.beside,
           f"{RUN} --tokens 192 --repetitions 6 --prompts FILES --rows {{raw}}/beside.jsonl share/q4_0/0 share/q4_0/50"),
    Report("peers", "Others in the same memory", "headline-peers*.jsonl peers*.jsonl", headline.peers, "as headline"),
    Report("chains", "Length of the chain, 4 GB in 1.2G", "chain*.jsonl", headline.chains,
           f"{LEVER} bench -m {WORK}/deep-q4_0.lvr -d {DRAFT} --budgets 1.2G --strategies chain:8,chain:12,chain:16 "
           f"{THREE} --each 1 --lengths 48 --out {{raw}}/chain-deep.jsonl",
           Plot("bars", "strategy", "mean", ("target", "budget", "length"), "", TOKENS)),
    Report("speed", "Speed by task and strategy, equal memory (7/8 of the target)", "speed.jsonl", speed,
           f"{BENCH} --out {{raw}}/speed.jsonl --trace {{raw}}/trace.jsonl; gzip -n {{raw}}/trace.jsonl",
           Plot("bars", "task", "median", "strategy", "", TOKENS)),
    Report("ablation", "Each part left out, over the whole", "ablation*.jsonl pruning.jsonl", ablation,
           f"{BENCH} --budgets 0%,900M --strategies lever,lever+fixed:16,lever+no-ahead,lever+no-lookup,lever+head:demand,"
           f"lever+paper {THREE} --each 1 --out {{raw}}/ablation.jsonl; "
           f"{BENCH} --budgets 100% --strategies lever,lever+no-lookup --tasks code,editing,summary --each 1 --repetitions 2 "
           "--out {raw}/ablation-lookup.jsonl; "
           f"{BENCH} --budgets 50%,100% --strategies lever,lever+no-prune {THREE} --each 2 --out {{raw}}/pruning.jsonl; "
           f"{BENCH} --budgets 900M --strategies lever,lever+lru,ar,ar+lru --tasks code,dialogue --each 1 --lengths 64 "
           "--out {raw}/ablation-lru.jsonl",
           Plot("bars", "strategy", "median", "budget", "", "speed over the whole", level=1)),
    Report("budget", "Share of the target's layers in memory, over plain decoding with all in memory", "budget.jsonl", budget,
           f"{BENCH} --budgets 0%,25%,50%,75%,100% --strategies lever,chain:12,ar {THREE} --each 1 --lengths 64 --out {{raw}}/budget.jsonl",
           Plot("lines", "share", "over resident", "strategy", "percent of the layers in memory", RESIDENT, level=1, spread=False)),
    Report("drafts", "Quality of the draft", "drafts-*.jsonl", drafts,
           f"for d in draft-q8_0 draft-q4_0 draft-q2_k draft-short; do {LEVER} bench -m {TARGET} -d {WORK}/$d.lvr --budgets 0% "
           f"--strategies lever,chain:12 {THREE} --each 1 --lengths 64 --out {{raw}}/drafts-$d.jsonl; done; "
           f"{LEVER} bench --force-draft -m {TARGET} -d smollm2 --budgets 0% --strategies lever --tasks code --each 1 --lengths 64 "
           "--out {raw}/drafts-smollm2.jsonl   (another family: it is refused, and the row says so)",
           Plot("bars", "draft", "mean", "strategy", "", TOKENS)),
    Report("length", "Length of the answer", "length.jsonl", rates_by("length", "strategy"),
           f"{BENCH} --budgets 900M --strategies lever,chain:12,ar --lengths 32,64,128,256,512,1024 --tasks code,dialogue --each 1 "
           "--out {raw}/length.jsonl", Plot("lines", "length", "mean", "strategy", "tokens of the answer", TOKENS, log_x=True)),
    Report("temperature", "Temperature", "temperature.jsonl", rates_by("temperature", "strategy"),
           f"{BENCH} --budgets 0% --strategies lever,chain:12,ar --temps 0,0.4,0.8,1.2 --tasks code,dialogue --each 1 --lengths 64 "
           "--out {raw}/temperature.jsonl", Plot("lines", "temperature", "mean", "strategy", "temperature", TOKENS)),
    Report("disk", "Speed of the disk", "disk-*.jsonl", rates_by("GB/s", "strategy"),
           f"for s in 200 500 1000 2500; do {BENCH} --budgets 900M --strategies lever,chain:12,ar --tasks code,dialogue --each 1 --lengths 32 "
           "--disk-mbps $s --out {raw}/disk-$s.jsonl; done   (SD card 0.2, eMMC 0.5, UFS 3.1 1, UFS 4.0 2.5)",
           Plot("lines", "GB/s", "mean", "strategy", "GB/s", TOKENS, log_x=True)),
    Report("first-token", "Seconds to the first token and to the whole answer", "speed.jsonl", first_token,
           "as speed", Plot("bars", ("task", "strategy"), "median", "what", "", "seconds")),
    Report("stages", "Where the time of a token goes", "speed.jsonl", stages, "as speed",
           Plot("stack", "strategy", "mean", "stage", "", "ms a token")),
    Report("timeline", "What runs when in a few cycles of an answer", "timeline*.json.gz", traces.timeline,
           f"{LEVER} run {PAIR} --target-ram 0 --temp 0 -n 64 --trace {{raw}}/timeline.json --trace-format chrome 'Write a quicksort in C.'; "
           "gzip -n {raw}/timeline.json", TIMELINE, reads="events"),
    Report("phones", "Simulated phones", "phones-runs.csv", simulated.phones,
           f"{PHONES} runs --phones oneplus12 magicv5 honor500pro oneplus12:app magicv5:app honor500pro:app --per-task 1 --tokens 192",
           Plot("bars", ("phone", "section"), "over plain", "strategy", "", "speed over plain decoding", level=1)),
    Report("phones-shares", "Simulated OnePlus 12: share of the target in memory", "phones-shares.csv", simulated.shares,
           f"{PHONES} shares --per-task 1 --tokens 192",
           Plot("lines", "share", "over resident", ("strategy", "section"), "percent of the layers in memory", RESIDENT, level=1,
                spread=False)),
    Report("phones-ablation", "Simulated OnePlus 12: each part left out, over the whole", "phones-ablation.csv", simulated.ablation,
           f"{PHONES} ablation --per-task 1 --tokens 192",
           Plot("bars", "strategy", "over whole", ("section", "share"), "", "speed over the whole", level=1)),
    Report("phones-timeline", "Simulated OnePlus 12: what runs when in a few cycles of an answer", "phones-timeline*.json.gz", traces.timeline,
           f"{LEVER} run {PAIR} --phone oneplus12 --as llama-3.1-8b-q4_0,llama-3.2-1b-q4_0 --target-ram 0 --temp 0 -n 96 "
           "--trace {raw}/phones-timeline.json --trace-format chrome 'Write a quicksort in C.'; gzip -n {raw}/phones-timeline.json",
           TIMELINE, reads="events"),
    Report("acceptance", "Acceptance by depth", "trace.jsonl*", traces.acceptance, "as speed",
           Plot("lines", "depth", "measured", "", "depth in the tree", "share that was right"), reads="cycles"),
    Report("prediction", "Expected and measured time of a cycle", "trace.jsonl*", traces.prediction, "as speed",
           Plot("scatter", "expected", "measured", "", "seconds expected", "seconds measured"), reads="cycles"),
    Report("flash", "Bytes read and energy", "speed.jsonl", flash_and_energy, "as speed",
           Plot("bars", "task", "median", "strategy", "", "MiB read a token", only=("what", "MiB read a token"))),
    Report("entropy", "Could the streamed bytes shrink?", "entropy.jsonl", entropy,
           "llama-quantize --allow-requantize qwen2.5-coder-1.5b.gguf qwen2.5-coder-1.5b-q2_k.gguf Q2_K; "
           "llama-quantize --allow-requantize smollm2-135m.gguf smollm2-f16.gguf F16; "
           f"python3 bench/entropy.py {WORK}/target-q4_0.gguf {WORK}/draft-q8_0.gguf qwen2.5-coder-1.5b.gguf smollm2-135m.gguf "
           "qwen2.5-coder-0.5b.gguf qwen2.5-coder-1.5b-q2_k.gguf smollm2-f16.gguf --out {raw}/entropy.jsonl",
           Plot("bars", ("type", "model"), "coded share", "", "", "share of the bytes that is left")),
]
