"""What the tests of the command share: tiny models, and the command with a clean environment."""

import os
import subprocess
import sys
import tempfile

LEVER = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "lever"
HERE = os.path.dirname(os.path.abspath(__file__))
SCRATCH = tempfile.TemporaryDirectory(prefix="lever-test-")


def make_models():
    folder = os.path.join(SCRATCH.name, "tiny")
    script = os.path.join(HERE, "..", "tiny", "make_tiny_models.py")
    subprocess.run([sys.executable, script, folder], check=True, stdout=subprocess.DEVNULL)
    return folder


MODELS = make_models()
MODEL = os.path.join(MODELS, "qwen2-q4_k_m.gguf")


def environment(**more):
    """Nothing of the user's: no options, no cache, no colours. One thread, so that a busy machine is no obstacle."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVER_") and k not in ("NO_COLOR", "TERM")}
    cache = os.path.join(SCRATCH.name, "cache")
    return {**kept, "XDG_CACHE_HOME": cache, "TERM": "xterm", "LEVER_THREADS": "1", **more}


def lever(*words, stdin=b"", **more):
    """The finished command; standard output and error are bytes."""
    return subprocess.run([LEVER, *words], input=stdin, capture_output=True, env=environment(**more))
