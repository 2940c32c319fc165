"""What is made of the rows, and what must be reached. Figures are computed from rows alone.

A figure is a list of values of one kind: ratios between two arms of each pair, or values of single rows. It is judged
by its median, or, where a promise must hold every time, by its worst value. One without a bound is only shown.
"""

import dataclasses
from typing import Callable

from arithmetic import mean_over_tasks, medians
from rows import RATE, TASKS, round_of, task_of, whole_rounds

MIB = 1 << 20

# What the pair as it was pulled must reach, as a share of what the Q4_0 target must.
AS_PULLED = 0.85


@dataclasses.dataclass
class Figure:
    benchmark: str
    case: str
    title: str
    values: Callable  # rows of the benchmark that went well -> [float]
    at_least: float = None
    at_most: float = None
    worst: bool = False
    with_failed: bool = False  # rows that failed count too: the failure is the value
    unit: str = ""


def ratio(above, below, key, below_key=None):
    """Values of arm `above` over those of arm `below`, pair by pair."""

    def values(rows):
        pairs = {}
        for row in rows:
            pairs.setdefault(row["pair"], {})[row["arm"]] = row["values"]
        return [
            arms[above][key] / arms[below][below_key or key]
            for arms in pairs.values()
            if key in arms.get(above, {}) and (below_key or key) in arms.get(below, {})
        ]

    return values


def of_task(task, values):
    """Those of one task."""
    return lambda rows: values([row for row in rows if task_of(row) == task])


def mean_of_tasks(values):
    """One value: the mean over the tasks of the median of each."""

    def mean(rows):
        found = {task: own for task, own in ((task, of_task(task, values)(rows)) for task in TASKS) if own}
        return [mean_over_tasks(medians(found))] if found else []

    return mean


def each(arm, value):
    """One value of each row of an arm; None leaves the row out."""
    return lambda rows: [v for v in (value(row) for row in rows if row["arm"] == arm) if v is not None]


def _budget(row):
    return int(row["command"][row["command"].index("--ram") + 1])


def _kernel(types, key, batches, head=False):
    def value(row):
        found = row["values"]
        is_head = found["rows"] > 100000
        if found["type"].lower() not in types or found["batch"] not in batches or is_head != head:
            return None
        return found[key]

    return each("kernels", value)


def _models():
    """(case, factor) of the models whose speed is compared: the Q4_0 target, then the pair as pulled."""
    return (("target-q4_0", 1), ("target", AS_PULLED), ("draft", AS_PULLED))


def _speed_figures():
    flash = "decode_bytes_per_second"
    figures = []
    for case, factor in _models():
        if case != "draft":
            figures += [
                Figure("streamed", case, "nothing pinned, packed: bytes/s decoding / reader alone",
                       ratio("packed", "packed_reader", flash, "read_bytes_per_second"), 0.93 * factor),
                Figure("streamed", case, "nothing pinned, in place: bytes/s decoding / reader alone",
                       ratio("in_place", "in_place_reader", flash, "read_bytes_per_second"), 0.85 * factor),
            ]
        for arm, layout in (("packed", "packed"), ("in_place", "in place")):
            figures.append(Figure("pinned", case, f"all pinned, {layout}: tok/s / llama.cpp",
                                  ratio(arm, "peer", RATE), 0.97 * factor))
        for arm, layout in (("packed", "packed"), ("in_place", "in place")):
            figures.append(Figure("prefill", case, f"prefill of 1,000, all pinned, {layout} / llama.cpp",
                                  ratio(arm, "peer", "prefill_tokens_per_second"), 0.95 * factor))
        figures.append(Figure("prefill", case, "prefill of 1,000, nothing pinned: passes over flash",
                              each("streamed", lambda row: row["values"]["prefill_passes"]), at_most=2, worst=True))
        if case != "draft":
            figures.append(Figure("cgroup", case, "600 MiB, cold: tok/s / llama.cpp with mmap",
                                  ratio("packed", "peer", RATE), 2.5 * factor))
    return figures


def _kernel_figures():
    batches = (4, 8, 16, 32)
    figures = []
    for kind, least in (("q4_0", 2), ("q8_0", 2), ("q4_k", 1.5), ("q5_0", 1.5), ("q6_k", 1.5)):
        figures += [
            Figure("kernels", "*", f"kernel {kind.upper()}, packed, batch 4 to 32 / ggml's fastest",
                   _kernel((kind,), "ratio_packed", batches), least, worst=True),
            Figure("kernels", "*", f"kernel {kind.upper()}, in place, batch 4 to 32 / ggml's fastest",
                   _kernel((kind,), "ratio_in_place", batches), 1, worst=True),
        ]
    figures.append(Figure("kernels", "*", "head, Q6_K, 152k rows, batch 8 to 16 / ggml's fastest",
                          _kernel(("q6_k",), "ratio_packed", (8, 16), head=True), 3, worst=True))
    return figures


def _memory_figures():
    case = "target-q4_0"

    def survived(row):
        return float(row["exit"]["code"] == 0 and row["exit"]["oom_kills"] == 0)

    return [
        Figure("budgets", case, "rss_peak / --ram, 8 budgets",
               each("roomy", lambda row: row["values"]["rss_peak"] / _budget(row)), at_most=1, worst=True),
        Figure("budgets", case, "cgroup's peak under twice --ram / --ram, 8 budgets",
               each("roomy", lambda row: row["values"]["cgroup_peak_bytes"] / _budget(row)
                    if "cgroup_peak_bytes" in row["values"] else None), at_most=1, worst=True),
        Figure("budgets", case, "survives in a cgroup of --ram, 8 budgets", each("exact", survived), 1, worst=True,
               with_failed=True),
        Figure("budgets", case, "memory that no category of the ledger explains",
               each("roomy", lambda row: (row["values"]["rss_peak"] - row["values"]["ram_peak"]) / MIB),
               at_most=16, worst=True, unit="MiB"),
    ]


def _agreement_figures():
    figures = []
    for case in ("target-q4_0", "target", "draft", "small"):
        figures += [
            Figure("agreement", case, "the likeliest token is libllama's, 2,000 positions",
                   each("agreement", lambda row: row["values"]["percent"]), 98, worst=True, unit="%"),
            Figure("agreement", case, "for comparison: libllama's own with and without flash attention",
                   each("agreement", lambda row: row["values"]["itself_percent"]), unit="%"),
        ]
    return figures


def best_of(above, arms_below, key):
    """Arm `above` over the best of several others, pair by pair. A pair counts only when none of these is missing."""

    def values(rows):
        whole, pairs = whole_rounds(rows, arms_below), {}
        for row in rows:
            if row["status"] == "ok" and round_of(row) in whole:
                pairs.setdefault(round_of(row), {})[row["arm"]] = row["values"]
        found = []
        for arms in pairs.values():
            below = [arms[arm][key] for arm in arms_below if key in arms.get(arm, {})]
            if below and key in arms.get(above, {}):
                found.append(arms[above][key] / max(below))
        return found

    return values


# llama.cpp's ways to run under a limit; peer_drafted is what the chain of 8 was called in rows of schema 1.
PEERS = ("peer", "peer_direct", "peer_drafted", "peer_chain_8", "peer_chain_16", "peer_ngram")


def same_text(rows):
    """1 for each pair whose arms all gave the same tokens, 0 for one where they differ."""
    pairs = {}
    for row in rows:
        if "tokens_sha256" in row["values"]:
            pairs.setdefault(row["pair"], []).append(row["values"]["tokens_sha256"])
    return [float(len(set(texts)) == 1) for texts in pairs.values() if len(texts) > 1]


def _within_ram(row):
    ram = row["command"][row["command"].index("--ram") + 1]
    units = {"M": MIB, "G": 1024 * MIB}
    limit = float(ram[:-1]) * units[ram[-1]] if ram[-1] in units else float(ram)
    return row["values"]["rss_peak"] / limit


def _by_task(benchmark, case, title, values, least, least_of=None):
    """The median over all prompts, the mean over the tasks, which is judged, and the tasks."""
    figures = [
        Figure(benchmark, case, title + ", all prompts", values),
        Figure(benchmark, case, title + ", mean of the tasks", mean_of_tasks(values), least),
    ]
    for task in TASKS:
        figures.append(Figure(benchmark, case, f"{title}, {task}", of_task(task, values), (least_of or {}).get(task)))
    return figures


def _equal_ram_figures(pair, factor, said):
    figures = []
    for budget, least in (("900M", 2.2), ("1.0G", 1.5), ("1.2G", 1.0), ("1.5G", 1.25)):
        case, title = f"{pair}/{budget}", f"{said}equal --ram of {budget}"
        over_plain = ratio("lever", "ar", RATE)
        figures += [
            *_by_task("equal_ram", case, f"{title}: lever / ar", over_plain, least * factor),
            Figure("equal_ram", case, f"{title}: lever / ar, worst prompt", over_plain, 0.97, worst=True),
            Figure("equal_ram", case, f"{title}: rss_peak / --ram", each("lever", _within_ram), at_most=1, worst=True),
            Figure("equal_ram", case, f"{title}: the same text", same_text, 1, worst=True),
        ]
    better = best_of("lever", ("chain", "edge"), RATE)
    title = f"{said}equal --ram of 900M: lever / the better of chain and edge"
    return [*figures, Figure("equal_ram", f"{pair}/900M", title, better, 1.3 * factor)]


def _share_figures(pair, factor, said):
    def over(arm):
        return ratio("lever", arm, RATE)

    def hidden(row):
        return row["values"]["draft_hidden_seconds"] / max(row["values"]["draft_seconds"], 1e-9)

    tasks = {"code": 9 * factor, "maths": 6.5 * factor, "dialogue": 4.2 * factor}
    nothing, half, full, warm = (f"{pair}/{case}" for case in ("0", "50", "100", "0 warm"))
    figures = [
        *_by_task("share", nothing, f"{said}nothing pinned: lever / ar", over("ar"), 6.5 * factor, tasks),
        *_by_task("share", nothing, f"{said}nothing pinned: lever / chain", over("chain"), 1.4 * factor),
        *_by_task("share", nothing, f"{said}nothing pinned: lever / edge", over("edge"), 1.2 * factor),
        Figure("share", nothing, f"{said}nothing pinned: lever / llama.cpp with everything in memory", over("peer"),
               0.75 * factor),
        Figure("share", nothing, f"{said}nothing pinned: first token with a draft / without",
               ratio("lever", "ar", "first_token_seconds"), at_most=1.05),
        *_by_task("share", half, f"{said}half pinned: lever / ar", over("ar"), 4.5 * factor),
        Figure("share", half, f"{said}half pinned: lever / llama.cpp with everything in memory", over("peer"),
               1.05 * factor),
        Figure("share", full, f"{said}all pinned: lever / llama.cpp with everything in memory", over("peer")),
        Figure("share", full,
               f"{said}all pinned: lever / the better of llama.cpp plain and with its own speculation",
               best_of("lever", PEERS, RATE), 1.3 * factor),
        Figure("share", full, f"{said}all pinned: lever / ar", over("ar")),
        *_by_task("share", warm, f"{said}temperature 0.8, nothing pinned: lever / ar", over("ar"), 4.5 * factor),
    ]
    figures += [Figure("share", case, f"{said}the same text", same_text, 1, worst=True)
                for case in (nothing, half, full, warm)]
    for key in ("io_utilisation", "ahead_hit_rate"):
        figures.append(Figure("share", nothing, f"{said}nothing pinned: {key}",
                              each("lever", lambda row, key=key: row["values"].get(key))))
    return [*figures, Figure("share", nothing, f"{said}nothing pinned: share of draft time hidden", each("lever", hidden))]


def _equal_memory_figures():
    deep = "4 GB, equal --ram of 1.2G: lever / "
    return [
        *_by_task("equal_ram", "deep/1.2G", deep + "ar", ratio("lever", "ar", RATE), 7),
        *_by_task("equal_ram", "deep/1.2G", deep + "chain", ratio("lever", "chain", RATE), 1.4),
        Figure("equal_memory", "q4_0", "cgroup of 900 MiB: lever / llama.cpp's best", best_of("lever", PEERS, RATE), 3.5),
        Figure("equal_memory", "deep", "4 GB in a cgroup of 1.2G: lever / llama.cpp with mmap, plain",
               ratio("lever", "peer", RATE), 12),
        Figure("equal_memory", "deep", "4 GB in a cgroup of 1.2G: lever / llama.cpp's best",
               best_of("lever", PEERS, RATE), 4),
        Figure("equal_memory", "deep", "lever in 1.2G / llama.cpp with all 4 GB in memory, plain",
               ratio("lever", "peer_resident", RATE), 0.6),
    ]


def _speculation_figures():
    figures = _equal_memory_figures()
    for pair, factor, said in (("q4_0", 1, ""), ("pulled", AS_PULLED, "as pulled, ")):
        figures += [*_equal_ram_figures(pair, factor, said), *_share_figures(pair, factor, said)]
    return figures


FIGURES = [*_speed_figures(), *_kernel_figures(), *_memory_figures(), *_agreement_figures(), *_speculation_figures()]
