"""Equal memory: the headline, one line for each comparison and length of the answer; the chains that it may be compared
with; and every way in which others were run in that memory, failed ones too.
"""

from arithmetic import (add_mean, best_arm, best_of_pair, by_task, factor, mean_over_tasks, medians, paired, table,
                        values_of, with_outcomes)
from rows import TASKS

PEERS = ("peer", "peer_direct", "peer_chain_8", "peer_chain_16", "peer_ngram")
# What the arms of `equal_memory` are, for readers.
WAYS = {
    "lever": "lever, with its draft",
    "peer": "mmap, plain",
    "peer_direct": "direct I/O, plain",
    "peer_chain_8": "mmap, chain of 8 from the draft",
    "peer_chain_16": "mmap, chain of 16 from the draft",
    "peer_ngram": "mmap, n-grams of the text",
    "gpt4all": "mmap, plain",
    "peer_resident": "all in memory, plain",
}
DEFAULT_CHAIN = 12  # tokens, of lever's own chain


def chain_tokens(row):
    """How many tokens its chain has."""
    command = row.get("command", [])
    if ":" in row["arm"]:
        return int(row["arm"].partition(":")[2])
    return int(command[command.index("--chain-length") + 1]) if "--chain-length" in command else DEFAULT_CHAIN


def _lengths(rows):
    return sorted({factor(row, "length") for row in rows}, key=lambda length: length or 0)


def _of_length(pairs, length):
    return [(row, ratio) for row, ratio in pairs if factor(row, "length") == length]


def _line(what, wanted, paper, pairs, length):
    """From (row, ratio) pairs of one length. It is judged by three tasks, whatever else was measured."""
    memory, base = what
    tasks = by_task(_of_length(pairs, length), ()).get((), {})
    found = {task: median for task, median in medians(tasks).items() if task in TASKS}
    mean = mean_over_tasks(found)
    verdict = "not measured" if mean is None else "reached" if mean >= wanted else "missed"
    missing = [task for task in TASKS if task not in found]
    if mean is not None and missing:
        verdict += ", without " + " and ".join(missing)
    return {"target and memory": memory, "lever over": base, "tokens": length, "rounds": sum(len(tasks[task]) for task in found),
            "wanted": wanted, "paper": paper, "mean of three": mean, **{task: found.get(task) for task in TASKS}, "verdict": verdict}


def _lines(what, wanted, paper, pairs):
    """One for each length of answers: how much is drafted well, and what the beginning costs, depends on it."""
    pairs = [(row, ratio) for row, ratio in pairs if row["arm"] == "lever"]
    lengths = _lengths([row for row, _ in pairs if factor(row, "task") in TASKS]) or [None]
    return [_line(what, wanted, paper, pairs, length) for length in lengths]


def _over_chain(memory, wanted, paper, rows):
    """Over the best chain of each length of answers."""
    lines = []
    for length in _lengths([row for row in rows if row["arm"].startswith("chain")]):
        chosen = [row for row in rows if factor(row, "length") == length]
        if not any(row["arm"] == "lever" for row in chosen):
            continue  # a sweep of chains alone
        tokens = {row["arm"]: chain_tokens(row) for row in chosen if row["arm"].startswith("chain")}
        best, tried = best_arm(chosen, "chain"), sorted(set(tokens.values()))
        if best is None:
            continue
        name = f"chain of {tokens[best]}"
        if len(tried) > 1:
            name += f", the best of {', '.join(map(str, tried))}"
        lines += _lines((memory, name), wanted, paper, paired(chosen, best))
    return lines or _lines((memory, "chain"), wanted, paper, [])


def headline(rows):
    deep = [row for row in rows if row.get("models") and "deep" in row["models"][0]["name"]]
    pair = [row for row in rows if row not in deep]

    def own(chosen, budget):
        return [row for row in chosen if row["benchmark"] in ("bench", "equal_ram") and factor(row, "budget") == budget]

    def beside(chosen):
        return [row for row in chosen if row["benchmark"] == "equal_memory"]

    ram, group = "4 GB, --ram 1.2G for each", "4 GB, a control group of 1.2G for each"
    return [
        *_lines((ram, "plain decoding"), 7, 2.93, paired(own(deep, "1.2G"), "ar")),
        *_over_chain(ram, 1.4, 1.50, own(deep, "1.2G")),
        *_lines((group, "llama.cpp, mmap, plain"), 12, None, paired(beside(deep), "peer")),
        *_lines((group, "llama.cpp's best"), 4, None, best_of_pair(beside(deep), "lever", PEERS)),
        *_lines(("4 GB, lever in 1.2G", "llama.cpp, plain, all 4 GB in memory"), 0.6, 1 / 1.2, paired(beside(deep), "peer_resident")),
        *_lines(("default pair, --ram 900M for each", "plain decoding"), 2.2, 2.93, paired(own(pair, "900M"), "ar")),
        *_lines(("default pair, a control group of 900M for each", "llama.cpp's best"), 3.5, None,
                best_of_pair(beside(pair), "lever", PEERS)),
    ]


def chains(rows):
    """Rate by length of the chain, and lever over each."""
    names = ("target", "budget", "length", "strategy")
    over = [(row, 1 / ratio) for row, ratio in paired(rows, "lever")]
    return add_mean(table(values_of(rows), names), names, "lever over it", over)


def _as_peer(row):
    """With what a reader wants to know of a program as factors."""
    program, limit = row["program"], row["limits"]["cgroup_bytes"]
    facts = {"model": row["case"], "program": program["name"], "way": WAYS.get(row["arm"], row["arm"]), "version": program["version"],
             "memory": f"{limit >> 20}M" if limit else "no limit"}
    return {**row, "factors": {**row["factors"], **facts}}


def peers(rows):
    """Every way in which lever and others were run in a limit of memory: what came of it, and how fast it was."""
    chosen = [_as_peer(row) for row in rows if row["benchmark"] == "equal_memory" and row.get("limits") and row.get("program")]
    names = ("model", "length", "program", "way", "memory", "version")
    return with_outcomes(table(values_of(chosen), names), chosen, names)
