"""Real files, damaged at random or by someone who knows the format."""

import hashlib
import io
import pickle
import pickletools
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

Mutation: TypeAlias = Callable[[bytes, Random], bytes]

LONGEST = 1_000_000
"""Bytes; mutations that repeat things stop there."""

TOKENS = [
    token.encode()
    for token in (
        *"\0 \r \n \t \x1b[31m \x07 \x7f \u00a0 \u2028 \u200f \ufeff \U0001f525".split(" "),
        *", ; : - ? | > ' \" # % @ ` ! & * [ ] { } ( ) = + ~ \\ / .".split(" "),
        *"null true NO nan NaN inf -inf 1e999 -1e999 1e-999 -0 -1 0 00 0x10 1_000 1:30 1,5 1.5.2 .5 True None".split(),
        "9" * 25,
        "9" * 400,
        "9" * 5000,
        "1" + "0" * 308 + ".5",
        *"<<: *a,&a ,*a,!!python/object/apply:os.system [ls],!!binary x,!x ,--- ,...,%YAML 9.9,%TAG ! x:".split(","),
        '"\\ud800"',
        '"\\UFFFFFFFF"',
        '"\\x41',
        "=cmd|' /C calc'!A0",
        "@SUM(A1)",
        "../../etc/passwd",
        "/dev/zero",
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "ERR!",
        "[Unknown Error]",
        "[GPU is lost]",
        "2024/02/30 25:61:61.999",
        "0000/00/00 00:00:00.000",
        "9999/12/31 23:59:59.999",
        "0001/01/01 00:00:00.000",
        "0xffffffffffffffffff",
        "timestamp, power.draw [W]",
        "torch.ops.image.write_file",
        "os.system",
        "{a: {a: " * 20,
        "[" * 3000,
        "a: &a [x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n",
    )
] + [b"\xff\xfe", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"]

ENCODINGS = ["utf-16", "utf-32", "latin-1", "utf-8-sig", "cp500", "utf-7"]


def mutated(content: bytes, random: Random, mutations: Sequence[Mutation]) -> bytes:
    """Return a content after one to four mutations."""
    for _ in range(random.choice([1, 1, 1, 2, 2, 3, 4])):
        content = random.choice(mutations)(content, random)
    return content


def flip_bytes(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8, 64]) if changed else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def flip_bit(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(content: bytes, random: Random) -> bytes:
    begin, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return random.choice([content[:begin], content[end:], content[:begin] + content[end:]])


def insert_token(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content) + 1)
    return content[:place] + random.choice(TOKENS) + content[place:]


def replace_word(content: bytes, random: Random) -> bytes:
    """Put something else where a value stands between separators."""
    places = [0, *(place + 1 for place, byte in enumerate(content) if byte in b",:\n[] ")]
    begin = random.choice(places)
    end = next((place for place in range(begin, len(content)) if content[place] in b",:\n[]"), len(content))
    return content[:begin] + random.choice(TOKENS) + content[end:]


def copy_slice(content: bytes, random: Random) -> bytes:
    begin, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    place = random.randrange(len(content) + 1)
    return (content[:place] + content[begin:end] + content[place:])[:LONGEST]


def repeat_slice(content: bytes, random: Random) -> bytes:
    """Make a long line, or many."""
    begin = random.randrange(len(content) + 1)
    end = min(len(content), begin + random.choice([1, 2, 10, 100]))
    times = random.choice([10, 1000, 100_000])
    return (content[:begin] + content[begin:end] * times + content[end:])[:LONGEST]


def change_lines(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(5)
    if kind == 0:
        lines.insert(first, lines[second])
    elif kind == 1:
        del lines[first]
    elif kind == 2:
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == 3:
        lines[first] = lines[first].rstrip(b"\r\n") + random.choice([b"", b"\r", b"\0", b" \\"])
    else:
        random.shuffle(lines)
    return b"".join(lines)


def change_locale(content: bytes, random: Random) -> bytes:
    """Write it as a program of another country or system does."""
    decimal, separated = content.replace(b".", b","), content.replace(b",", b";")
    semicolons = separated.replace(b".", b",")
    line_ends = [content.replace(b"\n", b"\r\n"), content.replace(b"\n", b"\r")]
    return random.choice([decimal, separated, semicolons, content.replace(b",", b"\t"), content.upper(), *line_ends])


def change_encoding(content: bytes, random: Random) -> bytes:
    return content.decode(errors="replace").encode(random.choice(ENCODINGS), errors="replace")


TEXT_MUTATIONS: list[Mutation] = [
    *(flip_bytes, flip_bit, cut, insert_token, insert_token, replace_word, replace_word, copy_slice, repeat_slice),
    *(change_lines, change_lines, change_locale, change_encoding),
]
BYTE_MUTATIONS: list[Mutation] = [flip_bytes, flip_bit, cut, copy_slice, repeat_slice]


def mutated_text(content: bytes, random: Random) -> bytes:
    return mutated(content, random, TEXT_MUTATIONS)


# Pickles


def signed(payload: bytes) -> bytes:
    """Return a pickle with the checksum that a file of counts has."""
    return payload + hashlib.sha256(payload).digest()


def mutated_pickle(content: bytes, random: Random) -> bytes:
    """Return a file of counts that is damaged, or forged with a right checksum."""
    payload = content[: -hashlib.sha256().digest_size]
    kind = random.randrange(10)
    if kind < 2:
        return mutated(content, random, BYTE_MUTATIONS)
    if kind < 5:
        return signed(mutated(payload, random, BYTE_MUTATIONS))
    if kind < 8:
        return signed(with_other_opcodes(payload, random))
    return signed(with_other_values(payload, random))


def with_other_opcodes(payload: bytes, random: Random) -> bytes:
    """Return a pickle in which opcodes are missing, doubled, exchanged or added."""
    places = [place or 0 for _, _, place in pickletools.genops(payload)]
    opcodes = [payload[begin:end] for begin, end in zip(places, [*places[1:], len(payload)], strict=True)]
    for _ in range(random.choice([1, 1, 2, 5, 20])):
        first, second = random.randrange(len(opcodes)), random.randrange(len(opcodes))
        kind = random.randrange(4)
        if kind == 0:
            opcodes[first] = b""
        elif kind == 1:
            opcodes.insert(first, opcodes[second] * random.choice([1, 1, 3, 1000]))
        elif kind == 2:
            opcodes[first], opcodes[second] = opcodes[second], opcodes[first]
        else:
            opcodes.insert(first, any_opcode(random))
    return b"".join(opcodes)


def any_opcode(random: Random) -> bytes:
    """Return any opcode of any protocol, with an argument of about the right length or a hostile one."""
    opcode = random.choice(pickletools.opcodes)
    code = opcode.code.encode("latin-1")
    if opcode.arg is None:
        return code
    if opcode.arg.n > 0:
        return code + random.choice([bytes(opcode.arg.n), b"\xff" * opcode.arg.n, random.randbytes(opcode.arg.n)])
    text = random.choice([b"os\nsystem\n", b"builtins\neval\n", b"'x'\n", b"1\n", b"9" * 5000 + b"\n", b"x"])
    return code + random.choice([text, b"\x01x", struct.pack("<I", 2) + b"xx", struct.pack("<Q", 2**40), b"\xff" * 8])


VALUES: list[Any] = [None, True, 0, -1, 2**31, 2**63, 2**2000, 0.5, -0.0, float("nan"), float("inf"), 1e308, "", "x"]
VALUES += ["\n", "\ud800", "\x1b[31m", "x" * 5000, (), (1,), ((),), ("a", 1), (("a", 1),), b"x", [1], {"a": 1}, {1}]
VALUES += ["os.system", "torch.ops.image.write_file", "nms", "roi_align", "__getitem__", "torch.float32", "<x>", "..."]


def plainly_pickled(value: Any) -> bytes:
    """Return a pickle as files of counts have it: without references to earlier values."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=4)
    pickler.fast = True
    pickler.dump(value)
    return file.getvalue()


def with_other_values(payload: bytes, random: Random) -> bytes:
    """Return a pickle with other values in some places, of any type, or from elsewhere in it; some with references."""
    loaded = pickle.loads(payload)
    is_plain = random.random() < 0.8
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        deep, wide = (
            nested(random.choice([5, 20, 50, 400])),
            doubled(random.choice([3, 8] if is_plain else [3, 10, 40])),
        )
        parts = tuple(random.choices(VALUES, k=random.randrange(4)))
        other = random.choice([random.choice(VALUES), part_of(loaded, random), deep, wide, parts])
        loaded = with_other_part(loaded, other, random)
    try:
        return plainly_pickled(loaded) if is_plain else pickle.dumps(loaded, protocol=4)
    except RecursionError:
        return payload


def part_of(value: Any, random: Random) -> Any:
    while isinstance(value, tuple) and value and random.random() < 0.8:
        value = random.choice(value)
    return value


def with_other_part(value: Any, other: Any, random: Random) -> Any:
    if not isinstance(value, tuple) or not value or random.random() < 0.1:
        return other
    place = random.randrange(len(value))
    return (*value[:place], with_other_part(value[place], other, random), *value[place + 1 :])


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = (value,)
    return value


def doubled(times: int) -> Any:
    value: Any = ("x",)
    for _ in range(times):
        value = (value, value)
    return value
