"""GPT4All's Python package, which runs the same GGUF by a llama.cpp of its own, mapped from disk: plain decoding.

The package lives in a virtual environment in the cache folder, made once. Started as a program (by that environment's
Python), this file is the measurement: it answers a prompt from standard input and prints the figures as JSON.
"""

import json
import os
import subprocess
import sys
import time

PACKAGE, VERSION = "gpt4all", "2.8.2"


class Gpt4all:
    name = "gpt4all"

    def __init__(self, folder):
        self._folder = folder

    def facts(self):
        return {"name": self.name, "version": VERSION}

    def _python(self):
        from runner import Skip  # pylint: disable=import-outside-toplevel

        python, ready = os.path.join(self._folder, "bin", "python"), os.path.join(self._folder, "ready")
        if not os.path.exists(ready):
            for command in ([sys.executable, "-m", "venv", self._folder],
                            [python, "-m", "pip", "install", "-q", f"{PACKAGE}=={VERSION}"]):
                if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
                    raise Skip(f"{PACKAGE} {VERSION} could not be installed: '{' '.join(command)}' failed")
            with open(ready, "w", encoding="utf-8"):
                pass
        return python

    def complete(self, model, tokens, threads, context):
        """The prompt comes on standard input."""
        words = [model.path, str(tokens), str(threads), str(context)]
        return [self._python(), os.path.abspath(__file__), *words]

    @staticmethod
    def parse(result):
        begin = result.stdout.rfind("{")
        found = json.loads(result.stdout[begin:]) if begin >= 0 else {}
        if not found.get("decode_seconds"):
            raise ValueError("no figures in the output")
        return {**found, "decode_tokens_per_second": (found["completion_tokens"] - 1) / found["decode_seconds"]}


def main():
    from gpt4all import GPT4All  # pylint: disable=import-error,import-outside-toplevel,import-self

    path, tokens, threads, context = sys.argv[1], *(int(word) for word in sys.argv[2:5])
    model = GPT4All(os.path.basename(path), model_path=os.path.dirname(path), allow_download=False, device="cpu",
                    n_ctx=context, n_threads=threads)
    prompt, begin, times = sys.stdin.read(), time.monotonic(), []
    for _ in model.generate(prompt, max_tokens=tokens, temp=0, streaming=True):
        times.append(time.monotonic() - begin)
    if len(times) < 2:
        sys.exit(f"only {len(times)} tokens came")
    print(json.dumps({"completion_tokens": len(times), "first_token_seconds": times[0],
                      "decode_seconds": times[-1] - times[0]}))


if __name__ == "__main__":
    sys.path.pop(0)  # this folder holds a module of the package's name: this one
    main()
