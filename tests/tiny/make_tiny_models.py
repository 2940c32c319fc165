#!/usr/bin/env python3
"""Writes tiny models for tests: valid GGUF files that libllama loads and runs, a few megabytes in all but one.

    make_tiny_models.py FOLDER

Weights are random but the same on every machine: every byte comes from SHAKE-128 of the model's name and the tensor's.
Quantised tensors get random codes under sane scales, so that activations stay finite and logits differ clearly.
Nothing but Python's standard library is used. When FOLDER already holds what this script makes, nothing is written.

To add a model: append a Model(...) to MODELS below. `types` maps patterns of tensor names to types, the first match
counts; a new type needs an entry in TYPES (elements of a block, function that makes blocks). Every *.gguf in the folder
is picked up by the tests that run over all tiny models; what has a `folder` of its own, below, is not.
"""

import fnmatch
import hashlib
import os
import struct
import sys
from dataclasses import dataclass, field


def random_bytes(key, count):
    return hashlib.shake_128(key.encode()).digest(count)


# --- Types of tensors --------------------------------------------------------------------------------------------------
#
# Each function returns the bytes of `blocks` blocks of weights whose standard deviation is about `spread`.


def half(value):
    return struct.pack("<e", value)


def scales(key, blocks, middle):
    """A half-precision scale for each block, between half and one and a half of `middle`, a quarter of them negative."""
    table = [half(middle * (0.5 + i / 255) * (-1 if i % 4 == 0 else 1)) for i in range(256)]
    return [table[byte] for byte in random_bytes(key + "/scales", blocks)]


def join(parts, key, code_bytes, blocks):
    """The head of each block, followed by its random codes."""
    codes = random_bytes(key + "/codes", code_bytes * blocks)
    return b"".join(part + codes[i * code_bytes : (i + 1) * code_bytes] for i, part in enumerate(parts))


def floats(key, count, spread, sign_and_exponent):
    """Sign and exponent from a table, the rest of the mantissa random: exact in every floating-point format."""
    choices = [sign_and_exponent(sign, spread * factor) for sign in (1, -1) for factor in (0.4, 0.8, 1.2, 1.6)]
    high = random_bytes(key + "/high", count).translate(bytes(choices[i % len(choices)] for i in range(256)))
    return high, random_bytes(key + "/low", 3 * count)


def make_f32(key, count, spread):
    high, low = floats(key, count, spread, lambda sign, value: struct.pack(">f", sign * value)[0])
    second = struct.pack(">f", spread)[1] & 0x80  # the exponent's lowest bit lies in the second byte
    out = bytearray(4 * count)
    out[3::4] = high
    out[2::4] = bytes(second | byte >> 1 for byte in low[:count])
    out[1::4] = low[count : 2 * count]
    out[0::4] = low[2 * count :]
    return bytes(out)


def make_f16(key, count, spread):
    high, low = floats(key, count, spread, lambda sign, value: struct.pack(">e", sign * value)[0])
    out = bytearray(2 * count)
    out[1::2] = high
    out[0::2] = low[:count]
    return bytes(out)


def make_bf16(key, count, spread):
    return b"".join(word[2:] for (word,) in struct.iter_unpack("4s", make_f32(key, count, spread)))


def make_q4_0(key, blocks, spread):  # codes 0..15 less 8
    return join(scales(key, blocks, spread / 4.6), key, 16, blocks)


def make_q4_1(key, blocks, spread):  # codes 0..15 and a minimum
    heads = scales(key, blocks, spread / 4.6)
    return join([d + half(-7.5 * struct.unpack("<e", d)[0]) for d in heads], key, 16, blocks)


def make_q5_0(key, blocks, spread):  # codes 0..31 less 16
    return join(scales(key, blocks, spread / 9.2), key, 20, blocks)


def make_q5_1(key, blocks, spread):
    heads = scales(key, blocks, spread / 9.2)
    return join([d + half(-15.5 * struct.unpack("<e", d)[0]) for d in heads], key, 20, blocks)


def make_q8_0(key, blocks, spread):  # signed bytes; -128 does not occur in real files
    return join(scales(key, blocks, spread / 73), key, 32, blocks).replace(b"\x80", b"\x7f")


def make_iq4_nl(key, blocks, spread):  # codes into a table of 16 values of about +-70
    return join(scales(key, blocks, spread / 66), key, 16, blocks)


def k_heads(key, blocks, spread, code_spread, code_middle):
    """d, dmin and twelve bytes that hold eight 6-bit scales and minima: the minimum takes away the mean of the codes."""
    heads = []
    raw = random_bytes(key + "/sub", 16 * blocks)
    for i, d in enumerate(scales(key, blocks, spread / (code_spread * 41))):
        value = abs(struct.unpack("<e", d)[0])
        sub = [20 + byte % 44 for byte in raw[16 * i : 16 * i + 8]]
        low = [min(63, max(0, s + byte % 7 - 3)) for s, byte in zip(sub, raw[16 * i + 8 : 16 * i + 16])]
        packed = [sub[j] | (sub[j + 4] >> 4) << 6 for j in range(4)]
        packed += [low[j] | (low[j + 4] >> 4) << 6 for j in range(4)]
        packed += [sub[j + 4] & 15 | (low[j + 4] & 15) << 4 for j in range(4)]
        heads.append(half(value) + half(code_middle * value) + bytes(packed))
    return heads


def make_q4_k(key, blocks, spread):
    return join(k_heads(key, blocks, spread, 4.6, 7.5), key, 128, blocks)


def make_q5_k(key, blocks, spread):
    return join(k_heads(key, blocks, spread, 9.2, 15.5), key, 160, blocks)


def make_q6_k(key, blocks, spread):  # codes 0..63 less 32, sixteen signed scales, d at the end
    codes = random_bytes(key + "/codes", 192 * blocks)
    sub = random_bytes(key + "/sub", 16 * blocks).translate(
        bytes((20 + i % 41) if i % 4 else 256 - (20 + i % 41) for i in range(256))
    )
    ends = scales(key, blocks, spread / (18.5 * 40))
    return b"".join(codes[192 * i : 192 * (i + 1)] + sub[16 * i : 16 * (i + 1)] + d for i, d in enumerate(ends))


@dataclass
class Type:
    number: int  # enum ggml_type
    elements: int  # of a block
    make: object


TYPES = {
    "F32": Type(0, 1, make_f32),
    "F16": Type(1, 1, make_f16),
    "Q4_0": Type(2, 32, make_q4_0),
    "Q4_1": Type(3, 32, make_q4_1),
    "Q5_0": Type(6, 32, make_q5_0),
    "Q5_1": Type(7, 32, make_q5_1),
    "Q8_0": Type(8, 32, make_q8_0),
    "Q4_K": Type(12, 256, make_q4_k),
    "Q5_K": Type(13, 256, make_q5_k),
    "Q6_K": Type(14, 256, make_q6_k),
    "IQ4_NL": Type(20, 32, make_iq4_nl),
    "BF16": Type(30, 1, make_bf16),
}


# --- Vocabularies ------------------------------------------------------------------------------------------------------

MERGES = (
    "Ġ t|h e|i n|Ġ a|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b|e d|Ġ f|in g|Ġ p|o u|Ġa n|a l|"
    "a r|Ġt o|Ġ m|Ġo f|Ġ in|Ġ d|Ġ h|Ġan d|i c|a s|l e|Ġt h|i on|o m|l l|en t"
).split("|")


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary: itself if printable, else from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, spare = {}, 0x100
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(spare)
            spare += 1
    return [letters[byte] for byte in range(256)]


NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
    "message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
    "' [/INST]' }}{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)


def bpe(pre, controls, begin, end, template, add_begin, total=0):
    """A byte-level vocabulary of 256 bytes, what the merges make, and control tokens, filled up to `total`."""
    tokens = byte_letters() + [merge.replace(" ", "") for merge in MERGES] + controls
    kinds = [NORMAL] * (len(tokens) - len(controls)) + [CONTROL] * len(controls)
    while len(tokens) < total:
        tokens.append(f"[PAD{len(tokens)}]")
        kinds.append(UNUSED)
    return tokens, [
        ("tokenizer.ggml.model", "string", "gpt2"),
        ("tokenizer.ggml.pre", "string", pre),
        ("tokenizer.ggml.tokens", "strings", tokens),
        ("tokenizer.ggml.token_type", "i32s", kinds),
        ("tokenizer.ggml.merges", "strings", MERGES),
        ("tokenizer.ggml.bos_token_id", "u32", tokens.index(begin)),
        ("tokenizer.ggml.eos_token_id", "u32", tokens.index(end)),
        ("tokenizer.ggml.padding_token_id", "u32", tokens.index(controls[0])),
        ("tokenizer.ggml.add_bos_token", "bool", add_begin),
        ("tokenizer.chat_template", "string", template),
    ]


def vocabulary_qwen():
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return bpe("qwen2", controls, "<|endoftext|>", "<|im_end|>", CHATML, False, total=320)


def vocabulary_smollm():
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return bpe("smollm", controls, "<|im_start|>", "<|im_end|>", CHATML, False)


def vocabulary_llama3():
    controls = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return bpe("llama-bpe", controls, "<|begin_of_text|>", "<|eot_id|>", LLAMA3, True)


def vocabulary_sentencepiece():
    """Pieces with scores, bytes as a last resort; a blank is U+2581, also in front of a text."""
    pieces = "▁t he in ▁a re on ▁the er ▁s at ▁w ▁o en ▁c it is an or es ▁b ed ▁f ing ▁p ou".split()
    letters = [chr(code) for code in range(0x21, 0x7F)] + ["▁"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + pieces + letters
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(pieces) + len(letters))
    return tokens, [
        ("tokenizer.ggml.model", "string", "llama"),
        ("tokenizer.ggml.tokens", "strings", tokens),
        ("tokenizer.ggml.scores", "f32s", [0.0] * 259 + [-float(i) for i in range(len(pieces) + len(letters))]),
        ("tokenizer.ggml.token_type", "i32s", kinds),
        ("tokenizer.ggml.bos_token_id", "u32", 1),
        ("tokenizer.ggml.eos_token_id", "u32", 2),
        ("tokenizer.ggml.unknown_token_id", "u32", 0),
        ("tokenizer.ggml.add_bos_token", "bool", True),
        ("tokenizer.chat_template", "string", MISTRAL),
    ]


# --- Models ------------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    name: str
    arch: str
    types: dict  # pattern of tensor names -> type; norms, biases and rope factors are always F32
    vocabulary: object
    tied: bool = False
    layers: int = 2
    embedding: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    feed_forward: int = 512
    rope_base: float = 10000.0
    rope_factors: bool = False
    keys: list = field(default_factory=list)  # more keys, without the architecture's prefix
    version: int = 3
    parts: int = 1
    like: str = ""  # the weights are those of the model of this name,
    noise: float = 0.0  # but for this share of the code bytes of its layers, which are drawn anew (Q4_0 only)
    folder: str = ""


QWEN_BASE = 1000000.0
PAIR_SIZES = {"embedding": 128, "head_dim": 32, "feed_forward": 256, "layers": 3, "rope_base": QWEN_BASE}
PAIR_NOISE = 0.006

MODELS = [
    Model("llama-f32-tied", "llama", {"*": "F32"}, vocabulary_smollm, tied=True),
    Model("llama-q4_0", "llama", {"output.weight": "Q6_K", "*": "Q4_0"}, vocabulary_smollm),
    Model("llama-q4_0-gguf2", "llama", {"*": "Q4_0"}, vocabulary_smollm, tied=True, version=2),
    Model("llama-sentencepiece-q4_k", "llama", {"output.weight": "Q6_K", "*": "Q4_K"}, vocabulary_sentencepiece),
    Model(
        "llama3-factors-q8_0",
        "llama",
        {"*": "Q8_0"},
        vocabulary_llama3,
        tied=True,
        rope_base=500000.0,
        rope_factors=True,
    ),
    Model(
        "llama-linear-f16",
        "llama",
        {"*": "F16"},
        vocabulary_smollm,
        keys=[("rope.scaling.type", "string", "linear"), ("rope.scaling.factor", "f32", 4.0)],
    ),
    Model(
        "llama-yarn-q5_0",
        "llama",
        {"*": "Q5_0"},
        vocabulary_smollm,
        keys=[
            ("rope.scaling.type", "string", "yarn"),
            ("rope.scaling.factor", "f32", 4.0),
            ("rope.scaling.original_context_length", "u32", 64),
        ],
    ),
    # Rows of three groups of 32, one key/value head, sizes that are no powers of two.
    Model(
        "llama-narrow",
        "llama",
        {"*attn_v*": "Q8_0", "*ffn_down*": "Q5_0", "output.weight": "Q8_0", "*": "Q4_0"},
        vocabulary_smollm,
        embedding=96,
        heads=3,
        kv_heads=1,
        head_dim=32,
        feed_forward=224,
    ),
    # Types that lever has no kernel for.
    Model(
        "llama-foreign-types",
        "llama",
        {
            "*attn_q.*": "Q4_1",
            "*attn_k.*": "Q5_1",
            "*attn_v.*": "BF16",
            "*attn_output*": "IQ4_NL",
            "*ffn_down*": "Q5_K",
            "*ffn_gate*": "F16",
            "output.weight": "Q4_1",
            "*": "Q4_0",
        },
        vocabulary_smollm,
    ),
    # As Q4_K_M mixes types.
    Model(
        "qwen2-q4_k_m",
        "qwen2",
        {"*attn_v*": "Q6_K", "*ffn_down*": "Q6_K", "output.weight": "Q6_K", "*": "Q4_K"},
        vocabulary_qwen,
        rope_base=QWEN_BASE,
    ),
    # Types that change from layer to layer, as Q4_K_M has them in large models.
    Model(
        "qwen2-by-layer",
        "qwen2",
        {
            "blk.[13].attn_v*": "Q6_K",
            "blk.[13].ffn_down*": "Q6_K",
            "blk.2.ffn_gate*": "Q5_0",
            "output.weight": "Q6_K",
            "*": "Q4_K",
        },
        vocabulary_qwen,
        rope_base=QWEN_BASE,
        layers=4,
    ),
    Model("qwen2-split-q8_0", "qwen2", {"*": "Q8_0"}, vocabulary_qwen, tied=True, rope_base=QWEN_BASE, parts=3),
    # The head dimension is not embedding / heads.
    Model(
        "qwen3-mixed",
        "qwen3",
        {"*attn_*": "Q5_0", "*ffn_*": "Q4_K", "token_embd*": "Q8_0", "*": "Q6_K"},
        vocabulary_qwen,
        rope_base=QWEN_BASE,
        head_dim=128,
        keys=[("attention.key_length", "u32", 128), ("attention.value_length", "u32", 128)],
    ),
    # A pair: the draft is the target with noise, enough that it is often right and often wrong.
    Model("pair-target", "qwen2", {"*": "Q4_0"}, vocabulary_qwen, **PAIR_SIZES),
    Model("pair-draft", "qwen2", {"*": "Q4_0"}, vocabulary_qwen, **PAIR_SIZES, like="pair-target", noise=PAIR_NOISE),
    # Of what a process with it takes, layers are the larger part.
    Model(
        "pair-large",
        "qwen2",
        {"*": "F16"},
        vocabulary_qwen,
        layers=8,
        feed_forward=4096,
        rope_base=QWEN_BASE,
        folder="large",
    ),
]


def matrices(model, vocabulary_tokens):
    """Name, elements of a row, rows."""
    q_rows, kv_rows = model.heads * model.head_dim, model.kv_heads * model.head_dim
    yield "token_embd.weight", model.embedding, vocabulary_tokens
    if not model.tied:
        yield "output.weight", model.embedding, vocabulary_tokens
    for layer in range(model.layers):
        prefix = f"blk.{layer}."
        yield prefix + "attn_q.weight", model.embedding, q_rows
        yield prefix + "attn_k.weight", model.embedding, kv_rows
        yield prefix + "attn_v.weight", model.embedding, kv_rows
        yield prefix + "attn_output.weight", q_rows, model.embedding
        yield prefix + "ffn_gate.weight", model.embedding, model.feed_forward
        yield prefix + "ffn_up.weight", model.embedding, model.feed_forward
        yield prefix + "ffn_down.weight", model.feed_forward, model.embedding


def vectors(model):
    """Name, elements, middle and width of the values."""
    yield "output_norm.weight", model.embedding, 1.0, 0.5
    if model.rope_factors:
        yield "rope_freqs.weight", model.head_dim // 2, 4.5, 7.0
    for layer in range(model.layers):
        prefix = f"blk.{layer}."
        yield prefix + "attn_norm.weight", model.embedding, 1.0, 0.5
        yield prefix + "ffn_norm.weight", model.embedding, 1.0, 0.5
        if model.arch == "qwen2":
            yield prefix + "attn_q.bias", model.heads * model.head_dim, 0.0, 2.0
            yield prefix + "attn_k.bias", model.kv_heads * model.head_dim, 0.0, 2.0
            yield prefix + "attn_v.bias", model.kv_heads * model.head_dim, 0.0, 1.0
        if model.arch == "qwen3":
            yield prefix + "attn_q_norm.weight", model.head_dim, 1.0, 0.5
            yield prefix + "attn_k_norm.weight", model.head_dim, 1.0, 0.5


def with_noise(data, key, block_bytes, share):
    """Blocks that begin with a scale of two bytes: of the other bytes, this share is drawn anew."""
    out = bytearray(data)
    below = round(share * 65536)
    drawn = random_bytes(key, 3 * len(data))
    for i in range(len(data)):
        if i % block_bytes >= 2 and (drawn[2 * i] << 8 | drawn[2 * i + 1]) < below:
            out[i] = drawn[2 * len(data) + i]
    return bytes(out)


def make_tensors(model, vocabulary_tokens):
    """(name, dimensions, number of the type, bytes), in the order of the file."""
    source = model.like or model.name
    tensors = []
    for name, columns, rows in matrices(model, vocabulary_tokens):
        kind = TYPES[next(t for pattern, t in model.types.items() if fnmatch.fnmatch(name, pattern))]
        assert columns % kind.elements == 0, (model.name, name)
        gain = 4.0 if name == "output.weight" else 1.0  # logits that differ clearly
        spread = 0.1 if name == "token_embd.weight" else gain / columns**0.5
        data = kind.make(f"{source}/{name}", columns * rows // kind.elements, spread)
        if model.noise and name.startswith("blk."):
            data = with_noise(data, f"{model.name}/{name}/noise", 18, model.noise)
        tensors.append((name, [columns, rows], kind.number, data))
    for name, count, middle, width in vectors(model):
        values = [middle + width * (byte / 255 - 0.5) for byte in random_bytes(f"{source}/{name}", count)]
        tensors.append((name, [count], TYPES["F32"].number, struct.pack(f"<{count}f", *values)))
    return tensors


# --- GGUF --------------------------------------------------------------------------------------------------------------

ALIGNMENT = 32


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


SCALARS = {  # name: (number in the file, how it is packed)
    "u16": (2, lambda value: struct.pack("<H", value)),
    "u32": (4, lambda value: struct.pack("<I", value)),
    "i32": (5, lambda value: struct.pack("<i", value)),
    "f32": (6, lambda value: struct.pack("<f", value)),
    "bool": (7, lambda value: struct.pack("<B", value)),
    "string": (8, text),
}
ARRAY = 9


def pack_key(key, kind, value):
    if kind in SCALARS:
        number, pack = SCALARS[kind]
        return text(key) + struct.pack("<I", number) + pack(value)
    number, pack = SCALARS[kind[:-1]]  # "strings": an array of "string"
    return text(key) + struct.pack("<IIQ", ARRAY, number, len(value)) + b"".join(map(pack, value))


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def gguf(version, keys, tensors):
    table, offset = b"", 0
    for name, dims, number, data in tensors:
        table += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset)
        offset += len(padded(data))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(pack_key(*key) for key in keys) + table
    return padded(head) + b"".join(padded(data) for _, _, _, data in tensors)


def make_keys(model, tokens, vocabulary_keys):
    numbers = [
        ("block_count", "u32", model.layers),
        ("context_length", "u32", 512),
        ("embedding_length", "u32", model.embedding),
        ("feed_forward_length", "u32", model.feed_forward),
        ("attention.head_count", "u32", model.heads),
        ("attention.head_count_kv", "u32", model.kv_heads),
        ("attention.layer_norm_rms_epsilon", "f32", 1e-5),
        ("rope.dimension_count", "u32", model.head_dim),
        ("rope.freq_base", "f32", model.rope_base),
        ("vocab_size", "u32", len(tokens)),
        *model.keys,
    ]
    return [
        ("general.architecture", "string", model.arch),
        ("general.name", "string", "tiny " + model.name),
        *((f"{model.arch}.{key}", kind, value) for key, kind, value in numbers),
        *vocabulary_keys,
    ]


def files_of(model):
    """Yields (file name, bytes)."""
    tokens, vocabulary_keys = model.vocabulary()
    keys = make_keys(model, tokens, vocabulary_keys)
    tensors = make_tensors(model, len(tokens))
    if model.parts == 1:
        yield model.name + ".gguf", gguf(model.version, keys, tensors)
        return
    share = -(-len(tensors) // model.parts)
    for part in range(model.parts):
        split = [
            ("split.no", "u16", part),
            ("split.count", "u16", model.parts),
            ("split.tensors.count", "i32", len(tensors)),
        ]
        name = f"{model.name}-{part + 1:05}-of-{model.parts:05}.gguf"
        part_keys = keys + split if part == 0 else split
        yield name, gguf(model.version, part_keys, tensors[part * share : (part + 1) * share])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    with open(__file__, "rb") as script:
        stamp = hashlib.sha256(script.read()).hexdigest()
    stamp_path = os.path.join(folder, "stamp")
    if os.path.exists(stamp_path) and open(stamp_path).read() == stamp:
        return
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(stamp_path):  # of an older script: its models go, nothing else does
        for name in os.listdir(folder):
            if name.endswith(".gguf") or name == "stamp":
                os.remove(os.path.join(folder, name))
    for model in MODELS:
        for name, data in files_of(model):
            os.makedirs(os.path.join(folder, model.folder), exist_ok=True)
            with open(os.path.join(folder, model.folder, name), "wb") as file:
                file.write(data)
    with open(stamp_path, "w") as file:
        file.write(stamp)


if __name__ == "__main__":
    main()
