"""Tables of the simulated phones, from the rows of bench/phones.py, in which time is virtual."""

from arithmetic import add_mean, against, factor, table, values_of
from rows import RATE

ENERGY = "energy_per_token"


def measured(rows):
    """The lines of its CSV in the form of other rows: those of a phone, share and prompt are a round."""
    found = []
    for row in rows:
        tokens, cycles = int(row["tokens"]), int(row["cycles"])
        factors = {"phone": row["phone"], "section": row["section"], "budget": row["pinned_percent"] + "%", "task": row["task"],
                   "prompt": row["prompt"]}
        values = {RATE: 1 / float(row["seconds_per_token"]), ENERGY: float(row[ENERGY]), "completion_tokens": tokens + 1,
                  "cycles": cycles, "nodes_verified": int(row["nodes_verified"]), "nodes_accepted": tokens - cycles}
        found.append({"benchmark": "phones", "case": row["section"], "arm": row["arm"], "pair": " ".join(factors.values()),
                      "status": "ok", "factors": factors, "values": values})
    return found


def _over(rows, arm, name=RATE):
    """(row, ratio) to an arm with the same share in memory, of the same phone and prompt."""
    return against(rows, [row for row in rows if row["arm"] == arm], name=name)


def _over_resident(rows):
    """(row, ratio) to plain decoding with everything in memory, whatever share the row has."""
    resident = [row for row in rows if row["arm"] == "ar" and factor(row, "share") == 100]
    return against(rows, resident, lambda row: tuple(factor(row, name) for name in ("phone", "section", "task", "prompt")))


def phones(rows):
    """Over plain decoding, and the energy of a token."""
    rows, names = measured(rows), ("section", "phone", "strategy")
    lines = add_mean(table(_over(rows, "ar"), names, "over plain"), names, "energy / plain", _over(rows, "ar", ENERGY))
    return add_mean(lines, names, "mJ a token", [(row, joules * 1e3) for row, joules in values_of(rows, ENERGY)])


def shares(rows):
    """Over the share of the target in memory: speed over plain decoding with the same share, over memory-resident plain
    decoding, and the energy of a token over that of the first."""
    rows, names = measured(rows), ("phone", "section", "share", "strategy")
    lines = add_mean(table(_over(rows, "ar"), names, "over plain"), names, "over resident", _over_resident(rows))
    lines = add_mean(lines, names, "energy / plain", _over(rows, "ar", ENERGY))
    return [line for line in lines if line["over resident"] is not None]


def ablation(rows):
    """A part left out: speed and energy over those of the whole."""
    rows, names = measured(rows), ("phone", "section", "share", "strategy")
    lines = add_mean(table(_over(rows, "lever"), names, "over whole"), names, "energy / whole", _over(rows, "lever", ENERGY))
    return [line for line in lines if line["strategy"] not in ("lever", "ar")]
