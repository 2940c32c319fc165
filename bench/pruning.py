"""What the pruning predictor is worth: rows, layers, nodes, recall, and tokens a second.

Costs are frozen, those of a machine with a half, nothing or all of the target in memory, so every run makes the same
cycles wherever it runs. Only the tokens a second depend on the clock; the share that is stated is in memory for them.
Each prompt is answered greedily, without the predictor, with its scores alone (nothing goes), with pruning as the costs
say, with a share that is forced, and by an oracle that knows the answer, in one order and then in the other.

    python3 bench/pruning.py --lever build/release/lever --target T --draft D --out results.json
    python3 bench/pruning.py --show results.json
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96)
MILLISECONDS = {  # two threads of a Zen 4 machine, Q4_0, 1.5B and 0.5B, measured while it did nothing else
    "layers-one": (43, 45, 50, 68, 103, 137, 207, 277, 405, 532, 800),
    "layers-all": (22.6, 24, 26, 36, 54, 72, 109, 146, 213, 280, 420),
    "draft-one": (14, 15, 18, 30, 43, 56, 83, 110, 163, 216, 320),
    "draft-all": (8.2, 8.6, 9.6, 14, 19, 24, 35, 46, 68, 90, 133),
    "head": (6.2, 6.6, 7.4, 10, 13, 16, 22, 28, 40, 52, 76),
}
READING = {"all": (0, 0), "half": (150, 30), "nothing": (300, 30)}  # a pass, and of it what the ring holds
PERCENT = {"all": 100, "half": 50, "nothing": 0}  # of the layers in memory
GOES = 0.4


def write_costs(path, pinned):
    lines = ["lever costs 2"]
    for name, curve in MILLISECONDS.items():
        lines += [f"{name} {rows} {round(ms * 1e6)} 8" for rows, ms in zip(ROWS, curve)]
    io, ring = READING[pinned]
    lines += [f"io {io * 1000000}", f"ring {ring * 1000000}"]
    lines += [f"ahead {level} {way} 0 0" for level in range(4) for way in range(2)]  # nothing learned yet
    lines += ["kept 0 0", "kept 1 0", "lever calibration 1", "end 0"]
    path.write_text("\n".join(lines) + "\n")


# --- Recall, from traces in which nothing went -----------------------------------------------------------------------


def nodes_of(cycle):
    """Rows of the pass: parent row, share by the draft, by the predictor, by the predictor without shadow candidates."""
    row_of, found = {0: 0}, {}
    parents = {node["i"]: node["parent"] for node in cycle["nodes"]}
    children = {}
    for node, row, a, share in cycle["scores"]:
        children.setdefault(parents[node], []).append((row, a, share))
        if row >= 0:
            row_of[node] = row
    without = {parent: without_shadow(those) for parent, those in children.items()}
    for node, row, a, share in cycle["scores"]:
        if row >= 0:
            found[row] = (row_of[parents[node]], a, share, share * without[parents[node]], node)
    return found


def without_shadow(children):
    """By what the shares of a node's children in the pass grow when its shadow candidates (row -1) are left out. What
    stands for every other token (OTHER, what the shares of all candidates leave of 1) stays among them."""
    if all(a == share for _, a, share in children):
        return 1.0  # the predictor was not asked about these
    other = max(0.0, 1 - sum(share for _, _, share in children))
    stays = other + sum(share for row, _, share in children if row >= 0)
    return 1 / stays if stays > 0 else 1.0


def kept(nodes, which, goes):
    """The rows that stay when `goes` of them go, the backbone first, then the best by the product of shares."""
    west = {0: 1.0}
    for row in sorted(nodes):
        west[row] = west[nodes[row][0]] * which(nodes[row])
    backbone, at = set(), 0
    while True:
        children = [row for row in nodes if nodes[row][0] == at]
        if not children:
            break
        at = max(children, key=lambda row: west[row])
        backbone.add(at)
    order = sorted(nodes, key=lambda row: (row not in backbone, -west[row], row))
    return set(order[: len(nodes) - max(0, min(int(len(nodes) * goes), len(nodes) - len(backbone)))])


def recall_of(cycles, goes=GOES):
    sums = {name: 0 for name in ("accepted", "nodes", "gone", "predictor", "draft", "no_shadow", "oracle")}
    for cycle in cycles:
        if not cycle["scores"]:
            continue
        nodes = nodes_of(cycle)
        path = set(cycle["path"])
        sums["accepted"] += len(path)
        sums["nodes"] += len(nodes)
        ways = {
            "draft": lambda node: node[1],
            "predictor": lambda node: node[2],
            "no_shadow": lambda node: node[3],
            "oracle": lambda node: 1.0 if node[4] in path else 1e-6,
        }
        for name, which in ways.items():
            stays = kept(nodes, which, goes)
            sums[name] += sum(1 for row in stays if nodes[row][4] in path)
        sums["gone"] += len(nodes) - len(stays)
    return sums


# --- Runs ------------------------------------------------------------------------------------------------------------


def run(options, prompt, costs, pinned, *more, trace=None):
    command = [options.lever, "run", "-m", options.target, "-d", options.draft, "--force-draft"]
    command += ["--target-ram", str(PERCENT[pinned])]
    command += ["--costs", str(costs), "--temp", "0", "-n", str(options.tokens), "--json", "-q", *more]
    if options.predictor and "--no-prune" not in more:
        command += ["--predictor", options.predictor]
    if trace:
        command += ["--trace", str(trace)]
    done = subprocess.run([*command, "-"], input=prompt.encode(), capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode()}")
    return json.loads(done.stdout)


FIGURES = ("completion_tokens", "cycles", "layer_rows", "nodes_verified", "nodes_pruned", "nodes_accepted")
FIGURES += ("ahead_hit_rate", "prune_recall", "tokens_per_second", "cycles_scored")


def measure(options, name, prompt, pinned, folder, turn):
    """One prompt: every arm --repetitions times, in one order and then in the other; `turn` says with which it begins.
    The tokens that the oracle knows are found before, in a run that counts nowhere."""
    costs, trace, known = folder / "frozen.costs", folder / "trace.jsonl", folder / "tokens.txt"
    write_costs(costs, pinned)
    tokens = run(options, prompt, costs, pinned, "--no-prune")["tokens"]
    known.write_text(" ".join(map(str, tokens)))
    ways = {
        "without": ("--no-prune",),
        "scores": ("--prune-forced", "--prune-cap", "0"),
        "with": (),
        "forced": ("--prune-forced", "--prune-cap", str(round(GOES * 100))),
        "oracle": ("--oracle", str(known), "--prune-cap", "100"),
    }
    runs = {arm: [] for arm in ways}
    for repetition in range(options.repetitions):
        for arm in list(ways) if (turn + repetition) % 2 == 0 else reversed(ways):
            result = run(options, prompt, costs, pinned, *ways[arm], trace=trace if arm == "scores" else None)
            if result["tokens"] != tokens:
                sys.exit(f"{name}: the text changed")
            runs[arm].append({figure: result[figure] for figure in FIGURES})
    cycles = [json.loads(line) for line in trace.read_text().splitlines()]
    row = {"prompt": name, "pinned": pinned, "recall": recall_of(cycles), "runs": runs}
    row["arms"] = {arm: {figure: statistics.median(one[figure] for one in those) for figure in FIGURES}
                   for arm, those in runs.items()}
    return row


def show(rows):
    for pinned in READING:
        those = [row for row in rows if row["pinned"] == pinned]
        if not those:
            continue
        sums = {key: sum(row["recall"][key] for row in those) for key in those[0]["recall"]}
        accepted = max(1, sums["accepted"])
        gone = sums["gone"] / max(1, sums["nodes"])
        print(f"{pinned} pinned, {len(those)} prompts: {sums['nodes']} nodes, {accepted} accepted; {gone:.1%} go:")
        for name in ("oracle", "predictor", "no_shadow", "draft"):
            print(f"    recall, {name:10} {sums[name] / accepted:.4f}")
        for arm in those[0]["arms"]:
            per_token = [row["arms"][arm]["layer_rows"] / row["arms"][arm]["completion_tokens"] for row in those]
            base = [row["arms"]["without"]["layer_rows"] / row["arms"]["without"]["completion_tokens"] for row in those]
            ratio = statistics.median(a / b for a, b in zip(per_token, base))
            cycles = sum(row["arms"][arm]["cycles"] for row in those)
            tokens = sum(row["arms"][arm]["completion_tokens"] for row in those)
            pruned = sum(row["arms"][arm]["nodes_pruned"] for row in those)
            scored = sum(row["arms"][arm].get("cycles_scored", 0) for row in those)
            hits = statistics.median(row["arms"][arm]["ahead_hit_rate"] for row in those)
            speeds = [row["arms"][arm].get("tokens_per_second", 0) for row in those]
            bases = [row["arms"]["without"].get("tokens_per_second", 1) for row in those]
            gains = [a / b for a, b in zip(speeds, bases)]
            print(
                f"    {arm:8} tokens/s {statistics.median(gains):.3f} of without ({min(gains):.2f} to {max(gains):.2f})\n"
                f"             layer-rows a token {statistics.median(per_token):7.1f} ({ratio:.3f} of without), "
                f"tokens a cycle {tokens / cycles:.2f}, cycles scored {scored:g} of {cycles:g}, nodes pruned {pruned:g}, "
                f"ahead_hit_rate {hits:.3f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lever")
    parser.add_argument("--target")
    parser.add_argument("--draft")
    parser.add_argument("--predictor")
    parser.add_argument("--prompts", default=str(HERE / "prompts.jsonl"))
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--some", type=int, default=1000, help="only about so many prompts of the file, spread over it")
    parser.add_argument("--repetitions", type=int, default=2, help="of every arm; medians count (default %(default)s)")
    parser.add_argument("--pinned", choices=list(READING), action="append")
    parser.add_argument("--out", default="pruning.json")
    parser.add_argument("--show", metavar="FILE", help="print what an earlier run found")
    options = parser.parse_args()
    if options.show:
        show(json.loads(pathlib.Path(options.show).read_text()))
        return
    prompts = [json.loads(line) for line in pathlib.Path(options.prompts).read_text().splitlines()]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for pinned in options.pinned or list(READING):
            for turn, prompt in enumerate(prompts[:: max(1, len(prompts) // options.some)]):
                rows.append(measure(options, prompt["id"], prompt["prompt"], pinned, pathlib.Path(folder), turn))
                pathlib.Path(options.out).write_text(json.dumps(rows, indent=1))
                print(prompt["id"], pinned, rows[-1]["recall"], file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
