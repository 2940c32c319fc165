#!/usr/bin/env python3
"""Would it pay to compress what is streamed? Measures, for each type of weight in a model, how far its bytes could
shrink without loss, how far a real coder shrinks them, and how fast one core gives them back.

    bench/entropy.py MODEL.gguf...  [--out docs/results/raw/entropy.jsonl]

The bound is the order-0 entropy of each byte of a block, counted apart for each position within the block: what an ideal
coder that knows where it is could reach. (For types with 4-bit codes also of each half of a byte: `nibbles`.) The coder
is zstd on the block's fields, each laid out by itself so that like stands beside like; its level changes little, since
there is nothing to match, only symbols that are more or less frequent. Speed is of one core, in processor time.

A disk of `d` bytes a second gives d / r bytes of weights a second when they are stored as a share r. If decoding has a
core of its own, that is a gain while decoding is faster than the disk: below the break-even speed of r times the
decoder's. If the core has other work (verifying a tree, drafting), the time is added to it instead: break-even (1 - r)
times the decoder's. Both stand in the rows; what is made of them is in docs/RESULTS.md.
"""

import argparse
import collections
import math
import os
import sys
import time

sys.dont_write_bytecode = True

import rows
from gguf import FormatError, Reader

SAMPLE_BYTES = 16 << 20
ROUNDS = 5


def entropy(counts):
    """Bits a symbol."""
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def entropy_by_position(data, block_bytes):
    """Bits a byte, the mean over the positions of a block."""
    return sum(entropy(collections.Counter(data[p::block_bytes])) for p in range(block_bytes)) / block_bytes


def nibble_entropy(data):
    """Bits a byte, its halves apart."""
    counts = collections.Counter(data)
    low, high = collections.Counter(), collections.Counter()
    for byte, n in counts.items():
        low[byte & 15] += n
        high[byte >> 4] += n
    return entropy(low) + entropy(high)


def fields(data, kind):
    """The scales' bytes, each position by itself, and everything else together."""
    codes = [position for position in range(kind.bytes) if position not in kind.scales]
    rest = bytearray(len(data) // kind.bytes * len(codes))
    for index, position in enumerate(codes):
        rest[index :: len(codes)] = data[position :: kind.bytes]
    return [*(bytes(data[position :: kind.bytes]) for position in kind.scales), bytes(rest)]


def code(parts, codec):
    """(share of the bytes, bytes a second of one core): compresses each part, then gives them back."""
    coded = [codec.compress(part) for part in parts]
    whole = sum(len(part) for part in parts)
    best = min(_seconds(codec, coded) for _ in range(ROUNDS))
    return sum(len(part) for part in coded) / whole, whole / best


def _seconds(codec, coded):
    begin = time.process_time()
    for part in coded:
        codec.decompress(part)
    return max(time.process_time() - begin, 1e-9)


class Zstd:
    name = "zstd"

    def __init__(self):
        import zstandard  # pylint: disable=import-outside-toplevel

        self.version = "zstd " + ".".join(map(str, zstandard.ZSTD_VERSION))
        self._coder, self._decoder = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()

    def compress(self, data):
        return self._coder.compress(data)

    def decompress(self, data):
        return self._decoder.decompress(data)


class Deflate:
    """What Python has without packages: much slower, the same share or a little more."""

    def __init__(self):
        import zlib  # pylint: disable=import-outside-toplevel

        self.version = "deflate (zlib " + zlib.ZLIB_VERSION + ")"
        self.compress, self.decompress = (lambda data: zlib.compress(data, 1)), zlib.decompress


def coder():
    try:
        return Zstd()
    except ImportError:
        return Deflate()


def sample(path, tensors):
    """Up to SAMPLE_BYTES of a type, from all over the model."""
    share = SAMPLE_BYTES // len(tensors)
    parts = []
    with open(path, "rb") as file:
        for tensor in tensors:
            size = min(tensor.bytes, share // tensor.kind.bytes * tensor.kind.bytes)
            file.seek(tensor.offset)
            parts.append(file.read(size))
    return b"".join(parts)


def measure(path, codec):
    reader = Reader(path)
    by_type = {}
    for tensor in reader.tensors:
        if tensor.layer is not None and len(tensor.dimensions) > 1:
            by_type.setdefault(tensor.type, []).append(tensor)
    for tensors in by_type.values():
        kind, data = tensors[0].kind, sample(path, tensors)
        share, rate = code(fields(data, kind), codec)
        values = {
            "type": kind.name,
            "streamed_bytes": sum(tensor.bytes for tensor in tensors),
            "sample_bytes": len(data),
            "entropy_share": entropy_by_position(data, kind.bytes) / 8,
            "coded_share": share,
            "decode_bytes_per_second": rate,
            "breakeven_own_core": share * rate,
            "breakeven_shared_core": max(0.0, 1 - share) * rate,
        }
        if kind.elements == 32 and kind.bytes <= 20:
            codes = fields(data, kind)[-1]
            scales = sum(entropy(collections.Counter(data[p :: kind.bytes])) for p in kind.scales)
            bits = scales + nibble_entropy(codes) * (kind.bytes - len(kind.scales))
            values["nibbles_share"] = bits / 8 / kind.bytes
        yield values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="GGUF files")
    parser.add_argument("--out", default="build/bench/entropy.jsonl", help="rows (default %(default)s)")
    options = parser.parse_args()
    codec = coder()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    writer = rows.Writer(options.out, rows.machine(options.models[0]), rows.commit(root))
    print(f"{'model':<28} {'type':<6} {'MiB':>6} {'bound':>7} {'nibbles':>8} {codec.version:>12} {'GB/s':>6}")
    try:
        for path in options.models:
            name = os.path.basename(path)
            for values in measure(path, codec):
                row = {"benchmark": "entropy", "case": name, "arm": values["type"], "pair": None, "repetition": 0}
                row.update(factors={"model": name, "type": values["type"]}, status="ok", reason="")
                row.update(program={"name": "entropy.py", "version": codec.version}, models=[], command=sys.argv)
                writer.write({**row, "values": values})
                nibbles = f"{values['nibbles_share']:8.4f}" if "nibbles_share" in values else " " * 8
                print(f"{name:<28} {values['type']:<6} {values['streamed_bytes'] / 2**20:6.0f} {values['entropy_share']:7.4f} "
                      f"{nibbles} {values['coded_share']:12.4f} {values['decode_bytes_per_second'] / 1e9:6.2f}")
    except (FormatError, OSError) as error:
        print(f"entropy.py: {error}", file=sys.stderr)
        return 1
    finally:
        writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
