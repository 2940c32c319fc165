"""What tables are made of: values of rows, grouped, compared within a round, and averaged over tasks.

A row that failed counts nowhere but in `outcomes`. A mean is the mean of the tasks' medians everywhere, as `lever bench`
takes it, so that no task weighs more because it has more prompts. Tested on fixed rows.
"""

import re
import statistics

from rows import RATE, TASKS, round_of, run_of, task_named, task_of, whole_rounds

# --- What a row says --------------------------------------------------------------------------------------------------


def factor(row, name):
    """A factor by name, also of those that follow from other fields; None where the row does not say."""
    factors = row.get("factors", {})
    if name == "strategy":
        return row["arm"]
    if name == "share":
        budget = str(factors.get("budget", ""))
        return int(budget[:-1]) if budget.endswith("%") else None
    if name == "target":
        return row["models"][0]["name"] if row.get("models") else None
    if name == "draft":
        return row["models"][1]["name"] if len(row.get("models", [])) > 1 else "none"
    if name == "GB/s":
        limit = row.get("limits", {}).get("read_bytes_per_second")
        return limit / 1e9 if limit else None
    return task_of(row) if name == "task" else factors.get(name)


def key_of(row, names):
    """None where the row does not say one of them."""
    key = tuple(factor(row, name) for name in names)
    return None if None in key else key


def value(row, name):
    found = row.get("values", {}).get(name)
    return None if found is None else float(found)


def succeeded(rows):
    return [row for row in rows if row["status"] == "ok"]


def per_token(name):
    """A sum over the decoding of an answer by its tokens; None where it is 0, which stands for unknown."""
    def found(row):
        whole, tokens = value(row, name), value(row, "completion_tokens")
        return whole / tokens if whole and tokens else None

    return found


def values_of(rows, value_or_name=RATE):
    """(row, value) of the rows that went well and have one. By name, or by a function of the row."""
    for row in succeeded(rows):
        found = value_or_name(row) if callable(value_or_name) else value(row, value_or_name)
        if found is not None:
            yield row, found


# --- Comparing --------------------------------------------------------------------------------------------------------


def against(rows, bases, key=round_of, name=RATE):
    """(row, ratio of its value to that of the base with the same key), for every row that has one."""
    found = {key(row): own for row, own in values_of(bases, name)}
    for row, own in values_of(rows, name):
        if found.get(key(row)):
            yield row, own / found[key(row)]


def paired(rows, base, name=RATE):
    """The same within a round, for every arm but the base."""
    return against([row for row in rows if row["arm"] != base], [row for row in rows if row["arm"] == base], name=name)


def same_answer(row):
    """What rows share that answer the same prompt in the same run, whatever memory they have."""
    names = ("task", "prompt", "temperature", "length")
    return run_of(row), row.get("repetition"), row.get("stdin_sha256"), *(factor(row, name) for name in names)


def best_of_pair(rows, above, below, name=RATE):
    """(row, ratio) of arm `above` to the best of the arms `below` in each round in which none of these is missing."""
    best, whole = {}, whole_rounds(rows, below)
    for row, own in values_of(rows, name):
        this = round_of(row)
        if row["arm"] in below and own and this in whole:
            best[this] = max(best.get(this, 0), own)
    for row, own in values_of(rows, name):
        if row["arm"] == above and round_of(row) in best:
            yield row, own / best[round_of(row)]


def best_arm(rows, begin):
    """Of the arms whose name begins so, the one with the highest mean rate over the headline's tasks: what tuning would
    choose. Only arms that have all the tasks that one of them has can be compared."""
    chosen = [row for row in rows if row["arm"].startswith(begin) and factor(row, "task") in TASKS]
    groups = by_task(values_of(chosen), ("strategy",))
    most = max(map(len, groups.values()), default=0)
    means = {arm: mean_over_tasks(medians(tasks)) for (arm,), tasks in groups.items() if len(tasks) == most}
    return max(means, key=means.get) if means else None


# --- Averaging --------------------------------------------------------------------------------------------------------


def summary(values):
    return {"n": len(values), "median": statistics.median(values), "least": min(values), "most": max(values)}


def medians(tasks):
    """task -> values  to  task -> median, the paper's tasks first."""
    names = [name for name in TASKS if name in tasks] + [name for name in tasks if name not in TASKS]
    return {name: statistics.median(tasks[name]) for name in names}


def mean_over_tasks(tasks, only=None):
    """The mean of the tasks' medians: over all that are there, or only over some."""
    chosen = [median for task, median in tasks.items() if only is None or task in only]
    return statistics.mean(chosen) if chosen else None


def grouped(pairs, names):
    """Median, least and most of the values for each combination of factors, in the order in which they come."""
    groups = {}
    for row, found in pairs:
        key = key_of(row, names)
        if key is not None:
            groups.setdefault(key, []).append(found)
    return [{**dict(zip(names, key)), **summary(values)} for key, values in groups.items()]


def with_means(lines, names):
    """Behind the lines of each group (their factors without the task), one with the mean over its tasks."""
    groups = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in names if name != "task"), []).append(line)
    found = []
    for group in groups.values():
        n, mean = sum(line["n"] for line in group), mean_over_tasks({line["task"]: line["median"] for line in group})
        found += [*group, {**group[0], "task": "mean", "n": n, "median": mean, "least": None, "most": None}]
    return found


def by_task(pairs, names):
    """Factors -> task -> values."""
    groups = {}
    for row, found in pairs:
        key, task = key_of(row, names), factor(row, "task")
        if key is not None and task is not None:
            groups.setdefault(key, {}).setdefault(task_named(task), []).append(found)
    return groups


def across(tasks, called="mean"):
    """What a line says of task -> values: their number, the mean over the tasks, the least and the most of all, and the
    median of each task. `called`: what the mean is one of, for readers."""
    every = [found for values in tasks.values() for found in values]
    found = medians(tasks)
    return {"n": len(every), called: mean_over_tasks(found), "least": min(every), "most": max(every), **found}


def ordered(lines, names):
    """Numbers by their size, texts in the order in which they come."""
    places = {name: {} for name in names}

    def place(line, name):
        found = line[name]
        return found if isinstance(found, (int, float)) else places[name].setdefault(found, len(places[name]))

    keys = [[place(line, name) for name in names] for line in lines]
    return [lines[index] for index in sorted(range(len(lines)), key=keys.__getitem__)]


def table(pairs, names, called="mean"):
    """A line for each combination of factors, its tasks beside each other."""
    groups = by_task(pairs, names)
    return ordered([{**dict(zip(names, key)), **across(tasks, called)} for key, tasks in groups.items()], names)


def add_mean(lines, names, column, pairs):
    """Gives each line one column more: the mean over the tasks of other values with the same factors."""
    means = {key: mean_over_tasks(medians(tasks)) for key, tasks in by_task(pairs, names).items()}
    for line in lines:
        line[column] = means.get(tuple(line[name] for name in names))
    return lines


# --- What went wrong --------------------------------------------------------------------------------------------------

CLOCK = re.compile(r"\b\d+\.\d{2}\.\d{3}\.\d{3} ")  # llama.cpp's, in front of each line that it prints


def outcomes(rows, names):
    """Factors -> `status` and `message` of all their rows: what failed or was skipped is a result here."""
    groups = {}
    for row in rows:
        key = key_of(row, names)
        if key is not None:
            groups.setdefault(key, []).append(row)
    found = {}
    for key, group in groups.items():
        bad = [row for row in group if row["status"] != "ok"]
        said = dict.fromkeys(CLOCK.sub("", row["reason"]) for row in bad)
        status = " and ".join(dict.fromkeys(row["status"] for row in bad)) or "ok"
        found[key] = {"status": status if len(bad) in (0, len(group)) else f"{len(bad)} of {len(group)} {status}",
                      "message": "; ".join(said)}
    return found


def with_outcomes(lines, rows, names):
    """The lines with their outcomes, and lines for what has nothing but these."""
    told = outcomes(rows, names)
    there = {tuple(line[name] for name in names): line for line in lines}
    empty = {**dict.fromkeys(column for line in lines for column in line), "n": 0}
    return ordered([{**empty, **dict(zip(names, key)), **there.get(key, {}), **said} for key, said in told.items()], names)
