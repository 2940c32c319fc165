"""Rows: one raw measurement each, as JSON lines. The schema is documented in docs/BENCHMARKS.md.

A row states everything that is needed to judge it and to measure it again: the machine, the commit, the program, the
models by checksum, the whole command, the limits, what was in the page cache, and the values as they came. Nothing is
averaged here; summary.py does that, from rows alone.
"""

import datetime
import json
import os
import platform
import subprocess

SCHEMA = 2
READABLE = (1, 2)  # rows of schema 1 have no factors
TASKS = ("code", "maths", "dialogue")  # of the paper; means are taken over these where they are there
RATE = "decode_tokens_per_second"  # what is compared as a rule
SAME_TASK = {"coding": "code", "math": "maths"}  # as other sets of prompts call them


def task_named(name):
    return SAME_TASK.get(name, name)


def task_of(row):
    """None where the row is of no task."""
    return task_named(row.get("factors", {}).get("task"))


# Words of a command of `lever bench` that make its rows another run: what they choose is the same in a whole run.
_SETTINGS = (
    *("-m", "--model", "-d", "--draft", "--ctx", "--threads", "--lanes", "--device", "--device-for", "--costs"),
    *("--predictor", "--top-k", "--top-p", "--min-p", "--seed", "--cgroup-ram", "--disk-mbps"),
)
_SWITCHES = ("--force-draft", "--ignore-end", "--no-direct", "--watch-memory")


def _settings(command):
    found = []
    for index, word in enumerate(command):
        if word in _SETTINGS:
            found.append((word, *command[index + 1 : index + 2]))
        elif word in _SWITCHES or word.partition("=")[0] in _SETTINGS:
            found.append((word,))
    return tuple(sorted(found))


def run_of(row):
    """What tells runs apart whose rows are in one file. Rows of `make bench` name theirs; those of `lever bench` are of
    one run when program, target and settings are the same, however often it was gone on with."""
    if row.get("benchmark") != "bench":
        return (row.get("pair") or "").partition("@")[2]
    target = row["models"][0].get("sha256") if row.get("models") else None
    return row.get("program", {}).get("sha256"), target, _settings(row.get("command", []))


def round_of(row):
    """What rows share that were measured side by side, and no others. A row that was measured alone shares nothing."""
    pair = row["pair"] if row.get("pair") else id(row)
    prompt = row.get("stdin_sha256") if row.get("benchmark") == "bench" else None  # programs of others take it otherwise
    return row.get("benchmark"), row.get("case"), run_of(row), pair, prompt


def whole_rounds(rows, arms):
    """The rounds in which none of these arms is missing: each that ran anywhere in the benchmark, case and run has a row
    there, though it be one that failed with its reason. In others the best arm might be the one that is not there."""
    ran, there = {}, {}
    for row in rows:
        found = set(row.get("failed_beside", ()))
        if row.get("status", "ok") == "ok" or (row["status"] == "failed" and row.get("reason")):
            found.add(row["arm"])
        this = round_of(row)
        ran.setdefault(this[:3], set()).update(found.intersection(arms))
        there.setdefault(this, set()).update(found.intersection(arms))
    return {this for this, found in there.items() if found and found == ran[this[:3]]}


def with_failed_beside(rows):
    """The rows that went well, each with the arms of its round that failed: for figures that must know of these."""
    failed = {}
    for row in rows:
        if row["status"] == "failed" and row.get("reason"):
            failed.setdefault(round_of(row), set()).add(row["arm"])
    return [{**row, "failed_beside": sorted(failed.get(round_of(row), ()))} for row in rows if row["status"] == "ok"]


def read_text(path):
    """The content of a small file of the system, "" where it is missing or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _cpu():
    fields = {}
    for line in read_text("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    model = fields.get("model name") or fields.get("Hardware") or fields.get("CPU part") or platform.machine()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve", "sve2", "sme")
    return model, [flag for flag in wanted if flag in flags]


def _memory_bytes():
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def block_device(path):
    """(major, minor) of the whole disk under a file, or None where no disk is to be seen (tmpfs, overlay)."""
    device = os.stat(path).st_dev
    major, minor = os.major(device), os.minor(device)
    node = f"/sys/dev/block/{major}:{minor}"
    if major == 0 or not os.path.exists(node):
        return None
    if os.path.exists(f"{node}/partition"):  # limits are set on disks, not on their partitions
        major, minor = (int(part) for part in read_text(f"{node}/../dev").strip().split(":"))
    return major, minor


def _disk(path):
    mount, kind = "", ""
    for line in read_text("/proc/self/mounts").splitlines():
        fields = line.split()
        inside = os.path.realpath(path).startswith(fields[1].rstrip("/") + "/")
        if inside and len(fields[1]) >= len(mount):
            mount, kind = fields[1], fields[2]
    facts = {"filesystem": kind}
    device = block_device(path)
    if device:
        node = f"/sys/dev/block/{device[0]}:{device[1]}"
        facts["device"] = os.path.basename(os.path.realpath(node))
        facts["model"] = read_text(f"{node}/device/model").strip()
        facts["bytes"] = int(read_text(f"{node}/size").strip() or 0) * 512
        facts["rotational"] = read_text(f"{node}/queue/rotational").strip() == "1"
        facts["scheduler"] = read_text(f"{node}/queue/scheduler").strip()
    return facts


def machine(folder):
    """The machine, with the disk that holds `folder`."""
    model, sets = _cpu()
    return {
        "cpu": model,
        "architecture": platform.machine(),
        "instruction_sets": sets,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": _memory_bytes(),
        "kernel": platform.release(),
        "huge_pages": read_text("/sys/kernel/mm/transparent_hugepage/enabled").strip(),
        "disk": _disk(folder),
    }


def commit(folder):
    """The commit that was measured; a change of any known file makes it dirty."""

    def git(*arguments):
        result = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=False)
        return result.stdout.strip() if result.returncode == 0 else None

    changes = git("status", "--porcelain", "--untracked-files=no")
    return {"hash": git("rev-parse", "HEAD") or "unknown", "dirty": bool(changes) or changes is None}


def _row_of(line):
    """None: it is not one, or half of one."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def cut_half_line(path):
    """A run that was killed may have left half a line, to which the next row would be glued."""
    if not os.path.exists(path):
        return
    with open(path, "r+b") as file:
        whole = file.read()
        end = whole.rfind(b"\n") + 1
        if end == len(whole):
            return
        if not whole[end:].startswith(b"{"):
            raise ValueError(f"{path} does not end in a row; rows are not appended to it")
        if _row_of(whole[end:]) is not None:
            file.write(b"\n")
        else:
            file.truncate(end)


class Writer:
    """Appends rows to a file, each at once: a run that is broken off keeps what it measured."""

    def __init__(self, path, machine_facts, commit_facts):
        self.path, self._machine, self._commit = path, machine_facts, commit_facts
        self.rows = []
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        cut_half_line(path)
        self._file = open(path, "a", encoding="utf-8")

    def write(self, row):
        whole = {"schema": SCHEMA, "time": now(), **row, "machine": self._machine, "commit": self._commit}
        self._file.write(json.dumps(whole, ensure_ascii=False) + "\n")
        self._file.flush()
        self.rows.append(whole)
        return whole

    def close(self):
        self._file.close()


def read(paths):
    """The rows of several files. A row of another schema is refused, not guessed at; half a line at the end is none."""
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                row = _row_of(line)
                if row is None and line.endswith("\n"):
                    raise ValueError(f"{path}:{number}: not a row")
                if row is None:
                    continue
                if row.get("schema") not in READABLE:
                    raise ValueError(f"{path}:{number}: schema {row.get('schema')}, this program reads {READABLE}")
                rows.append(row)
    return rows
