#!/usr/bin/env python3
"""Makes larger and smaller models out of one that is there, for measuring.

    bench/deepen.py --times 5 target.gguf deep.gguf     five times the layers, the same logits to the last bit
    bench/deepen.py --drop 6 draft.gguf short.gguf      six layers less: a worse draft
    bench/deepen.py --check --programs build/release target.gguf deep.gguf

Behind each layer come copies of it whose output projections (attn_output, ffn_down) are zero: what they add to the
residual stream is nothing, so the logits are those of the original, while reading and computing cost what so many
layers cost. Only the scales of those matrices become zero; their codes stay, so that no disk finds zeros to compress.
Such a model has the quality, and the acceptance of a draft, of the original: it stands in for a large one where speed
is measured, and nowhere else. Its name says what it is. --drop leaves out layers evenly, never the first or the last.

--check scores a text with both models by lever, and compares every logit of every position.
"""

import argparse
import os
import subprocess
import sys

sys.dont_write_bytecode = True

from gguf import FormatError, Layer, Reader, rewrite

HERE = os.path.dirname(os.path.abspath(__file__))


def deepened(count, times):
    """Each layer, followed by its idle copies."""
    return [Layer(layer, idle=copy > 0) for layer in range(count) for copy in range(times)]


def shortened(count, dropped):
    """All layers but `dropped` of them, spread evenly over the inner ones."""
    inner = count - 2
    if not 0 < dropped <= inner:
        raise FormatError(f"of {count} layers, 1 to {inner} can be dropped, not {dropped}")
    gone = {1 + (2 * i + 1) * inner // (2 * dropped) for i in range(dropped)}
    return [Layer(layer) for layer in range(count) if layer not in gone]


def tell(done, total):
    if sys.stderr.isatty():
        print(f"\r{done * 100 // total} % of {total / 2**30:.2f} GiB ", end="" if done < total else "\n", file=sys.stderr)


def make(options):
    source = Reader(options.input)
    count = source.layers_count()
    if options.times:
        layers = deepened(count, options.times)
        what = f"deepened: {len(layers)} layers, of which {count} compute"
    else:
        layers = shortened(count, options.drop)
        what = f"shortened: {len(layers)} of {count} layers"
    name = source.string("general.name") or os.path.basename(options.input)
    rewrite(source, options.output, layers, f"{name} ({what})", tell)
    print(f"{options.output}: {what}, {os.path.getsize(options.output)} bytes")
    return 0


def check(options):
    program = os.path.join(options.programs, "bench_logits")
    text = os.path.join(HERE, "texts", "passages.txt")
    command = [program, options.input, options.output, "--text", text, "--positions", str(options.positions)]
    return subprocess.run(command, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="the original")
    parser.add_argument("output", help="the model that is made, or was")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--times", type=int, help="so many times the layers")
    what.add_argument("--drop", type=int, help="so many layers less")
    what.add_argument("--check", action="store_true", help="compare the logits of both")
    parser.add_argument("--positions", type=int, default=64, help="of the text, for --check (default %(default)s)")
    parser.add_argument("--programs", default="build/release", help="folder of bench_logits (default %(default)s)")
    options = parser.parse_args()
    try:
        return check(options) if options.check else make(options)
    except (FormatError, OSError) as error:
        print(f"deepen.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
