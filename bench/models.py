"""The models that are measured: found by size and checksum, whatever they are called, or made once into a folder.

`pulled` ones come from `lever pull`. The others are made from them: by llama-quantize (of the Q4_0 target the layers are
Q4_0 and the head stays Q6_K, so it streams fewer bytes and has kernels in every program), or by deepen.py: a target of
8B class from the 1.5B, a worse draft by leaving out layers. Packed files are made anew in
each run, because the layout may have changed since.
"""

import dataclasses
import glob
import hashlib
import json
import os
import subprocess
import sys

from runner import Skip

# name: (bytes, SHA-256)
PULLED = {
    "target": (1117320768, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"),
    "draft": (491400064, "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"),
    "small": (98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
}

TITLES = {
    "target-q4_0": "Qwen2.5-Coder-1.5B, Q4_0",
    "target": "Qwen2.5-Coder-1.5B, Q4_K_M",
    "draft": "Qwen2.5-Coder-0.5B, Q4_K_M",
    "draft-q4_0": "Qwen2.5-Coder-0.5B, Q4_0",
    "small": "SmolLM2-135M, Q4_1",
    "deep-q4_0": "deepened 1.5B, 140 layers, Q4_0",
    "draft-q8_0": "Qwen2.5-Coder-0.5B, Q8_0",
    "draft-q2_k": "Qwen2.5-Coder-0.5B, Q2_K",
    "draft-short": "Qwen2.5-Coder-0.5B, Q4_0, 18 of 24 layers",
}

# name: (what it is made from, how, with what). A requantised Q8_0 holds no more than the file it came from.
MADE = {
    "target-q4_0": ("target", "quantize", "Q4_0"),
    "draft-q8_0": ("draft", "quantize", "Q8_0"),
    "draft-q4_0": ("draft", "quantize", "Q4_0"),
    "draft-q2_k": ("draft", "quantize", "Q2_K"),
    "draft-short": ("draft-q4_0", "--drop", "6"),
    "deep-q4_0": ("target-q4_0", "--times", "5"),
}

# The drafts of the 1.5B by quality; the last one is of another family, and must be refused.
DRAFT_LADDER = ("draft-q8_0", "draft", "draft-q4_0", "draft-q2_k", "draft-short", "small")


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "lever")


@dataclasses.dataclass
class Model:
    name: str
    path: str
    sha256: str

    def facts(self):
        return {
            "name": self.name,
            "file": os.path.basename(self.path),
            "bytes": os.path.getsize(self.path),
            "sha256": self.sha256,
        }


class Models:
    def __init__(self, folders, work_folder, peer, lever):
        self._folders = [*folders, os.path.join(cache_folder(), "models"), work_folder]
        self._work, self._peer, self._lever = work_folder, peer, lever
        self._found = {}
        os.makedirs(work_folder, exist_ok=True)

    def get(self, name):
        """A GGUF by its name above, or Skip."""
        if name not in self._found:
            path = self._made(name) if name in MADE else self._pulled(name)
            self._found[name] = Model(name, path, self._checksum(path))
        return self._found[name]

    def packed(self, name):
        """The same model in the packed layout of the program that is measured."""
        key = name + " packed"
        if key not in self._found:
            source = self.get(name)
            path = os.path.join(self._work, name + ".lvr")
            self._make([self._lever, "pack", "--quiet", source.path, path], "packing " + source.path)
            os.sync()  # or its pages would still be written while something is measured
            self._found[key] = Model(name + ", packed", path, self._checksum(path))
        return self._found[key]

    def _pulled(self, name):
        size, checksum = PULLED[name]
        for folder in self._folders:
            for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.gguf"))):
                if os.path.getsize(path) == size and self._checksum(path) == checksum:
                    return path
        raise Skip(f"the model '{name}' ({TITLES[name]}) is not in {', '.join(self._folders)}: 'lever pull' fetches it")

    def _made(self, name):
        origin, how, what = MADE[name]
        source = self.get(origin).path
        path = os.path.join(self._work, name + ".gguf")
        if os.path.exists(path):
            return path
        if how == "quantize":
            quantize = self._peer.program("llama-quantize")
            command = [quantize, "--allow-requantize", source, path + ".unfinished", what, str(os.cpu_count())]
        else:
            tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deepen.py")
            command = [sys.executable, tool, how, what, source, path + ".unfinished"]
        self._make(command, "making " + name)
        os.replace(path + ".unfinished", path)
        return path

    @staticmethod
    def _make(command, what):
        try:
            result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise Skip(f"{what}: {command[0]}: {error.strerror}") from None
        if result.returncode != 0:
            lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
            raise Skip(f"{what} failed with exit code {result.returncode}: {lines[-1]}")

    def _checksum(self, path):
        """SHA-256, remembered by size and time of change."""
        status = os.stat(path)
        key = f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"
        memory_path = os.path.join(self._work, "checksums.json")
        try:
            with open(memory_path, encoding="utf-8") as file:
                memory = json.load(file)
        except (OSError, ValueError):
            memory = {}
        if key not in memory:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while piece := file.read(1 << 24):
                    digest.update(piece)
            memory[key] = digest.hexdigest()
            with open(memory_path + ".unfinished", "w", encoding="utf-8") as file:
                json.dump(memory, file, indent=1)
            os.replace(memory_path + ".unfinished", memory_path)
        return memory[key]
