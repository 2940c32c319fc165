"""Tables of traces: of the cycles of answers (`--trace`), and of what happened when (`--trace-format chrome`)."""

# --- Cycles -----------------------------------------------------------------------------------------------------------


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


# --- A timeline -------------------------------------------------------------------------------------------------------

CYCLES_SHOWN = 3
FIRST_SHOWN = 1  # of the cycles, from 0: the first one begins with a full ring, and with nothing drafted ahead
TARGET, DRAFT_AHEAD, LANES = 1, 2, 8  # tracks of the trace
# What stands on a line of its own of all that the target's track has; spans around others (a cycle, a pass) do not.
OWN_LINES = {"wait block": "waits for a block", "layer": "layers", "head rows": "head", "draft rows": "draft, before the pass"}


def _line_of(event):
    """(order, name) of the line of the picture that an event stands on, None for one that stands on none."""
    if event["tid"] >= LANES:
        return event["tid"] - LANES, f"reads, lane {event['tid'] - LANES}"
    if event["tid"] == DRAFT_AHEAD:
        return 200, "draft, beside the pass"
    name = OWN_LINES.get(event["cat"])
    return (100 + list(OWN_LINES).index(event["cat"]), name) if name else None


def _window(events):
    """Begin and end of the cycles that are shown, in microseconds."""
    cycles = sorted((e for e in events if e["cat"] == "cycle"), key=lambda e: e["ts"])
    shown = cycles[FIRST_SHOWN : FIRST_SHOWN + CYCLES_SHOWN] or cycles
    return (shown[0]["ts"], shown[-1]["ts"] + shown[-1]["dur"]) if shown else (0, 0)


def timeline(events):
    """What ran when in a few cycles of an answer, in milliseconds: reads by lane, waits, layers, head, draft."""
    events = [event for event in events if event.get("ph") == "X"]
    begin, end = _window(events)
    placed = sorted(((line, event) for line, event in ((_line_of(event), event) for event in events) if line),
                    key=lambda found: (found[0], found[1]["ts"]))
    lines = []
    for (_, track), event in placed:
        first, last = max(begin, event["ts"]), min(end, event["ts"] + event["dur"])
        if first < last:
            lines.append({"track": track, "what": event["cat"], "number": int(event["name"].rsplit(" ", 1)[1]),
                          "begin": round((first - begin) / 1e3, 3), "end": round((last - begin) / 1e3, 3)})
    return lines
