"""What the paper says, beside what was measured here and on simulated phones: the target streamed, nothing of it in
memory but where a line says so.
"""

from arithmetic import across, against, by_task, factor, per_token, value, values_of
from rows import RATE, TASKS
from simulated import ENERGY, measured

ABSTRACT, SUMMARY = "the abstract", "one summary only"


def energy(row):
    """Joules a token; None where nothing tells them."""
    return value(row, ENERGY) or None


def acceptance(row):
    """Candidates accepted of those verified: the root of a cycle is verified with them, and is none."""
    candidates = row["values"].get("nodes_verified", 0) - row["values"].get("cycles", 0)
    return row["values"]["nodes_accepted"] / candidates if candidates > 0 else None


def _over(arm, name=RATE, less=False, budget="0%"):
    """Lever over an arm of its round; or by how much less it is."""
    def pairs(rows):
        for row, ratio in against(rows, [row for row in rows if row["arm"] == arm], name=name):
            if row["arm"] == "lever" and factor(row, "budget") == budget:
                yield row, 1 - ratio if less else ratio

    return pairs


def _accepted(arm):
    return lambda rows: values_of([row for row in rows if row["arm"] == arm and factor(row, "budget") == "0%"], acceptance)


FIGURES = (
    ("speed over plain decoding from flash", 2.93, ABSTRACT, _over("ar")),
    ("speed over a chain of drafted tokens", 1.50, ABSTRACT, _over("chain")),
    ("speed over EdgeLLM's tree", 1.27, ABSTRACT, _over("edge")),
    ("speed over plain decoding with everything in memory (llama.cpp)", 1 / 1.2, SUMMARY, _over("peer")),
    ("the same with half of the layers in memory", None, "", _over("peer", budget="50%")),
    ("flash read a token, less than plain decoding's by", 0.6, SUMMARY, _over("ar", per_token("bytes_read"), less=True)),
    ("energy a token, less than plain decoding's by", 0.4, SUMMARY, _over("ar", energy, less=True)),
    ("accepted of the candidates verified, lever", "0.65 to 0.75", SUMMARY, _accepted("lever")),
    ("accepted of the candidates verified, chain", "0.45 to 0.55", SUMMARY, _accepted("chain")),
    ("nodes verified a token, over a chain's", None, "", _over("chain", per_token("nodes_verified"))),
    ("nodes verified a token, over EdgeLLM's", None, "", _over("edge", per_token("nodes_verified"))),
)


def beside(rows):
    """The means over the tasks of what was measured, and its tasks; of the simulated phones, the means alone."""
    here = [row for row in rows if row.get("benchmark") == "share"]
    phones = measured([row for row in rows if "pinned_percent" in row])
    lines = []
    for what, paper, found_in, pairs in FIGURES if here or phones else ():
        tasks, simulated = (by_task(pairs(given), ()).get((), {}) for given in (here, phones))
        line = {"what": what, "paper": paper, "found in": found_in, "here": None, "n": 0, **dict.fromkeys(TASKS)}
        if tasks:
            found = across(tasks)
            line.update({"here": found.pop("mean")}, **{key: found[key] for key in line if key in found})
        lines.append({**line, "simulated phones": across(simulated)["mean"] if simulated else None})
    return lines
