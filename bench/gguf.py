"""Rewrites GGUF files layer by layer, streaming from disk to disk: which layers there are, and which of them do nothing.

Keys and tensors are passed through as the bytes they are; only the number of layers, the name and the layers' numbers
change. Nothing but Python's standard library is needed.
"""

import dataclasses
import os
import re
import struct

ALIGNMENT = 32
CHUNK_BLOCKS = 1 << 18

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY, UINT32 = 8, 9, 4


@dataclasses.dataclass(frozen=True)
class Type:
    name: str
    elements: int  # of a block
    bytes: int
    scales: tuple  # bytes of a block that make every weight of it zero when they are zero


def _whole(size):
    return tuple(range(size))


# enum ggml_type
TYPES = {
    0: Type("F32", 1, 4, _whole(4)),
    1: Type("F16", 1, 2, _whole(2)),
    2: Type("Q4_0", 32, 18, (0, 1)),
    3: Type("Q4_1", 32, 20, (0, 1, 2, 3)),
    6: Type("Q5_0", 32, 22, (0, 1)),
    7: Type("Q5_1", 32, 24, (0, 1, 2, 3)),
    8: Type("Q8_0", 32, 34, (0, 1)),
    10: Type("Q2_K", 256, 84, (80, 81, 82, 83)),
    11: Type("Q3_K", 256, 110, (108, 109)),
    12: Type("Q4_K", 256, 144, (0, 1, 2, 3)),
    13: Type("Q5_K", 256, 176, (0, 1, 2, 3)),
    14: Type("Q6_K", 256, 210, (208, 209)),
    20: Type("IQ4_NL", 32, 18, (0, 1)),
    23: Type("IQ4_XS", 256, 136, (0, 1)),
    30: Type("BF16", 1, 2, _whole(2)),
}


class FormatError(ValueError):
    """The file is not one that can be rewritten; the text says why."""


@dataclasses.dataclass
class Tensor:
    name: str
    dimensions: tuple
    type: int
    offset: int  # in the file

    @property
    def kind(self):
        if self.type not in TYPES:
            raise FormatError(f"{self.name}: type {self.type} is not known here")
        return TYPES[self.type]

    @property
    def bytes(self):
        elements = 1
        for dimension in self.dimensions:
            elements *= dimension
        return elements // self.kind.elements * self.kind.bytes

    @property
    def layer(self):
        found = re.match(r"blk\.(\d+)\.", self.name)
        return int(found.group(1)) if found else None

    @property
    def role(self):
        """The name without the layer's number: "attn_output.weight"."""
        return re.sub(r"^blk\.\d+\.", "", self.name)


class Reader:
    """The head of a GGUF file: `keys` as {name: (type, raw value)}, `tensors` in the order of the file."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self._file = file
            if file.read(4) != b"GGUF":
                raise FormatError(f"{path} is not a GGUF file")
            self.version = self._number("<I")
            if self.version not in (2, 3):
                raise FormatError(f"{path}: GGUF version {self.version}; versions 2 and 3 are known here")
            tensors_count, keys_count = self._number("<Q"), self._number("<Q")
            self.keys = dict(self._key() for _ in range(keys_count))
            infos = [self._tensor() for _ in range(tensors_count)]
            alignment = self.number("general.alignment") or ALIGNMENT
            begin = (file.tell() + alignment - 1) // alignment * alignment
        self.tensors = [Tensor(name, dims, kind, begin + offset) for name, dims, kind, offset in infos]
        if (self.number("split.count") or 1) > 1:
            raise FormatError(f"{path} is one part of a split set: join it first")

    def _number(self, form):
        data = self._file.read(struct.calcsize(form))
        if len(data) != struct.calcsize(form):
            raise FormatError(f"{self.path} ends within its head")
        return struct.unpack(form, data)[0]

    def _raw(self, count):
        data = self._file.read(count)
        if len(data) != count:
            raise FormatError(f"{self.path} ends within its head")
        return data

    def _text(self):
        return self._raw(self._number("<Q")).decode("utf-8", errors="replace")

    def _value(self, kind):
        """The bytes of a value, as they are in the file."""
        if kind in SCALARS:
            return self._raw(struct.calcsize(SCALARS[kind]))
        if kind == STRING:
            length = self._raw(8)
            return length + self._raw(struct.unpack("<Q", length)[0])
        if kind != ARRAY:
            raise FormatError(f"{self.path}: a value of type {kind}, which is not known here")
        head = self._raw(12)
        inner, count = struct.unpack("<IQ", head)
        if inner in SCALARS:
            return head + self._raw(count * struct.calcsize(SCALARS[inner]))
        return head + b"".join(self._value(inner) for _ in range(count))

    def _key(self):
        name = self._text()
        kind = self._number("<I")
        return name, (kind, self._value(kind))

    def _tensor(self):
        name, dims_count = self._text(), self._number("<I")
        dims = tuple(self._number("<Q") for _ in range(dims_count))
        return name, dims, self._number("<I"), self._number("<Q")

    def number(self, name):
        """A whole number, or None where there is none of that name."""
        kind, raw = self.keys.get(name, (None, b""))
        return struct.unpack(SCALARS[kind], raw)[0] if kind in SCALARS else None

    def string(self, name):
        kind, raw = self.keys.get(name, (None, b""))
        return raw[8:].decode("utf-8", errors="replace") if kind == STRING else ""

    def layers_key(self):
        return self.string("general.architecture") + ".block_count"

    def layers_count(self):
        count = self.number(self.layers_key())
        if not count:
            raise FormatError(f"{self.path} does not say how many layers it has")
        return count


def _text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _padding(size):
    return -size % ALIGNMENT


@dataclasses.dataclass(frozen=True)
class Layer:
    source: int  # layer of the original
    idle: bool = False  # its output projections are zero: the residual stream passes unchanged


IDLE_ROLES = ("attn_output.weight", "attn_output.bias", "ffn_down.weight", "ffn_down.bias")


def _planned(source, layers):
    """(name, tensor of the source, whether it becomes zero), in the order of the new file."""
    by_layer = {}
    for tensor in source.tensors:
        by_layer.setdefault(tensor.layer, []).append(tensor)
    for tensor in by_layer.get(None, []):
        yield tensor.name, tensor, False
    for index, layer in enumerate(layers):
        roles = {tensor.role for tensor in by_layer.get(layer.source, [])}
        if layer.idle and not {"attn_output.weight", "ffn_down.weight"} <= roles:
            raise FormatError(f"{source.path}: layer {layer.source} has no attn_output and ffn_down to make zero")
        for tensor in by_layer[layer.source]:
            yield f"blk.{index}.{tensor.role}", tensor, layer.idle and tensor.role in IDLE_ROLES


def _keys(source, layers, name):
    keys = dict(source.keys)
    count = source.layers_count()
    for key, (kind, raw) in keys.items():
        if kind == ARRAY and not key.startswith("tokenizer.") and struct.unpack("<IQ", raw[:12])[1] == count:
            raise FormatError(f"{source.path}: {key} has a value for each layer; such models are not rewritten")
    keys[source.layers_key()] = UINT32, struct.pack("<I", len(layers))
    keys["general.name"] = STRING, _text(name)
    keys.pop("general.alignment", None)
    return keys


def _copy(source, target, tensor, idle):
    kind = tensor.kind
    source.seek(tensor.offset)
    left = tensor.bytes
    while left > 0:
        piece = bytearray(source.read(min(left, CHUNK_BLOCKS * kind.bytes)))
        if not piece:
            raise FormatError(f"the file ends within {tensor.name}")
        if idle:
            for byte in kind.scales:
                piece[byte :: kind.bytes] = bytes(len(piece) // kind.bytes)
        target.write(piece)
        left -= len(piece)
    target.write(bytes(_padding(tensor.bytes)))


def rewrite(source, path, layers, name, tell=lambda done, total: None):
    """Writes a model of `layers` from those of `source` (a Reader), through a temporary file renamed at the end."""
    plan = list(_planned(source, layers))
    table, offset = b"", 0
    for new_name, tensor, _ in plan:
        dims = tensor.dimensions
        table += _text(new_name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, tensor.type, offset)
        offset += tensor.bytes + _padding(tensor.bytes)
    keys = _keys(source, layers, name)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(plan), len(keys))
    head += b"".join(_text(key) + struct.pack("<I", kind) + raw for key, (kind, raw) in keys.items()) + table
    unfinished = path + ".unfinished"
    try:
        with open(source.path, "rb") as given, open(unfinished, "wb") as target:
            target.write(head + bytes(_padding(len(head))))
            done = 0
            for _, tensor, idle in plan:
                _copy(given, target, tensor, idle)
                done += tensor.bytes
                tell(done, offset)
            target.flush()
            os.fsync(target.fileno())
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
