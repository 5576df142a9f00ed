#!/usr/bin/env python3
"""Tokens and speed (processor time, one thread) beside tiktoken and tokenizers (PyPI), on the same
texts.

Usage: tokenizers_side_by_side.py tokenizer_bench [--only-compare] [--each-code-point] [--seed N]
                                 [--megabytes N] DIRECTORY...
A DIRECTORY holds tiktoken.model (and tokenizer_config.json) or tokenizer.json. Every token of every
text must be equal; the first one that is not ends the run. Texts: C headers, generated mixes of
scripts, emoji, marks, digits and white space, random code points, and bytes that are not UTF-8.
"""
import argparse
import base64
import codecs
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import time

import tiktoken
import tokenizers

KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def byte_characters():
    """The byte-level alphabet: what is printed in Latin-1 stands for itself."""
    characters, free = {}, 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            characters[byte] = chr(byte)
        else:
            characters[byte], free = chr(free), free + 1
    return characters


def runs(text):
    """(bytes, whether they are UTF-8): maximal runs."""
    bad = []

    def note(error):
        if bad and bad[-1][1] == error.start:
            bad[-1][1] = error.end
        else:
            bad.append([error.start, error.end])
        return "", error.end

    codecs.register_error("note", note)
    text.decode(errors="note")
    start = 0
    for first, end in bad:
        if first > start:
            yield text[start:first], True
        yield text[first:end], False
        start = end
    if start < len(text):
        yield text[start:], True


class Tiktoken:
    name = "tiktoken"

    def __init__(self, directory):
        ranks = {}
        for line in (directory / "tiktoken.model").read_bytes().splitlines():
            if line:
                token, rank = line.split()
                ranks[base64.b64decode(token)] = int(rank)
        config = json.loads((directory / "tokenizer_config.json").read_text())
        self.specials = {entry["content"]: int(number)
                         for number, entry in config["added_tokens_decoder"].items()}
        self.encoding = tiktoken.Encoding("model", pat_str=KIMI, mergeable_ranks=ranks,
                                          special_tokens=self.specials)

    def text(self, text, special):
        if special:
            return self.encoding.encode(text, allowed_special="all")
        return self.encoding.encode_ordinary(text)

    def timed(self, text):
        return self.encoding.encode_ordinary(text)

    def raw(self, piece):
        return self.encoding._encode_single_piece(piece)


class Tokenizers:
    name = "tokenizers"

    def __init__(self, directory):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.specials = [token.content for token in
                         self.tokenizer.get_added_tokens_decoder().values()]
        self.characters = byte_characters()

    def text(self, text, special):
        self.tokenizer.encode_special_tokens = not special
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def timed(self, text):
        """Its fastest call: ids without offsets."""
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def raw(self, piece):
        characters = "".join(self.characters[byte] for byte in piece)
        return [token.id for token in self.tokenizer.model.tokenize(characters)]


def reference_ids(library, text, special):
    ids = []
    for run, is_utf8 in runs(text):
        ids += library.text(run.decode(), special) if is_utf8 else library.raw(run)
    return ids


HEADERS = b""


def headers(size):
    global HEADERS
    if len(HEADERS) < size:
        for path in sorted(pathlib.Path("/usr/include").rglob("*.h*")):
            if len(HEADERS) >= size:
                break
            if path.is_file():
                HEADERS += path.read_bytes()
    return HEADERS[:size].decode(errors="ignore").encode()


def mixed(size, rng, specials):
    """Words, scripts, emoji, marks, digits, white space and what looks like special tokens."""
    ranges = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x3041, 0x30FF),
              (0xAC00, 0xD7A3), (0x0400, 0x052F), (0x0370, 0x03FF), (0x0590, 0x06FF),
              (0x0900, 0x0DFF), (0x0E00, 0x0E7F), (0x1F300, 0x1FAFF), (0x0300, 0x036F),
              (0x2000, 0x206F), (0x00A0, 0x024F), (0x2150, 0x218F), (0xFF00, 0xFFEF),
              (0x1E00, 0x1EFF), (0xFB00, 0xFB4F)]
    english = "the of and to prefix state layer Token's WE'LL don't I'm he'd they've you're İt'S".split()
    spaces = [" ", "  ", "\n", "\r\n", "\t", "\n\n", "\r", "   \n", " \n ", "\u00a0", "\u3000",
              "\u2028", "\u0085", "\u180e", "\u200b", "        ", "\t\t"]
    made, length = [], 0
    while length < size:
        kind = rng.randrange(9)
        if kind == 0:
            low, high = rng.choice(ranges)
            piece = "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))
        elif kind == 1:
            piece = rng.choice(spaces) * rng.randint(1, 3)
        elif kind == 2:
            piece = "".join(rng.choice("0123456789٠۳५０Ⅷ½²") for _ in range(rng.randint(1, 9)))
        elif kind == 3:
            piece = rng.choice("aeiouAEIOUn") + "".join(
                chr(rng.randint(0x300, 0x36F)) for _ in range(rng.randint(1, 4)))
        elif kind == 4:
            piece = rng.choice(["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "🧑‍💻", "❤️", "1️⃣"])
        elif kind == 5:
            piece = "".join(rng.choice("!?.,;:-_()[]{}<>|/\\'\"`~@#$%^&*+=") for _ in
                            range(rng.randint(1, 6)))
        elif kind == 6 and specials:
            piece = rng.choice(specials)
            piece = piece if rng.random() < 0.7 else piece[:rng.randint(1, len(piece))]
        else:
            piece = rng.choice(english)
            piece = rng.choice([piece, piece.upper(), piece.title(), " " + piece, " " + piece])
        made.append(piece)
        length += len(piece.encode())
    return "".join(made).encode()


def random_code_points(size, rng):
    made = bytearray()
    while len(made) < size:
        code_point = rng.randrange(rng.choice([0x80, 0x800, 0x10000, 0x110000]))
        if not 0xD800 <= code_point < 0xE000:
            made += chr(code_point).encode()
    return bytes(made)


def every_code_point():
    """Each one between two letters, two digits and two spaces."""
    return "".join(f"a{chr(c)}b 1{chr(c)}2 {chr(c)} \n" for c in range(0x110000)
                   if not 0xD800 <= c < 0xE000).encode()


def broken(size, rng, specials):
    text = bytearray(mixed(size, rng, specials))
    for _ in range(size // 40):
        text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text) + rng.randbytes(size // 8)


def ours(bench, directory, text, special, rounds):
    with tempfile.TemporaryDirectory() as folder:
        source, ids = pathlib.Path(folder, "text"), pathlib.Path(folder, "ids")
        source.write_bytes(text)
        command = [bench, str(directory), str(source), str(ids), str(rounds)]
        output = subprocess.run(command + (["--special"] if special else []), check=True,
                                stdout=subprocess.PIPE, text=True).stdout.split()
        packed = ids.read_bytes()
        return list(struct.unpack(f"<{len(packed) // 4}I", packed)), float(output[1])


def compare(bench, directory, library, name, text, special):
    got, _ = ours(bench, directory, text, special, 1)
    expected = reference_ids(library, text, special)
    if got == expected:
        return len(got)
    at = next((i for i, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]),
              min(len(got), len(expected)))
    raise SystemExit(f"{directory.name}, {name}, special {special}: token {at} differs: ours "
                     f"{got[at - 3:at + 5]}, theirs {expected[at - 3:at + 5]}")


def library_seconds(library, text, rounds):
    text = text.decode()
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        library.timed(text)
        best = min(best, time.process_time() - start)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("directories", nargs="+", type=pathlib.Path)
    parser.add_argument("--only-compare", action="store_true")
    parser.add_argument("--each-code-point", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=2)
    options = parser.parse_args()
    size = int(options.megabytes * 1e6)
    rows = []
    for directory in options.directories:
        library = (Tiktoken if (directory / "tiktoken.model").exists() else Tokenizers)(directory)
        rng = random.Random(options.seed)
        specials = list(library.specials)
        timed = {"C headers": headers(2 * size), "mixed scripts": mixed(size, rng, specials)}
        texts = dict(timed)
        texts["code points"] = random_code_points(size, rng)
        texts["not UTF-8"] = broken(size, rng, specials)
        if options.each_code_point:
            texts["each code point"] = every_code_point()
        tokens = sum(compare(options.bench, directory, library, name, text, special)
                     for name, text in texts.items() for special in (False, True))
        compared = 2 * sum(map(len, texts.values())) / 1e6
        cells = [directory.name, library.name, f"{compared:.1f}", f"{tokens:,}"]
        for text in timed.values() if not options.only_compare else ():
            megabytes = len(text) / 1e6
            own = megabytes / ours(options.bench, directory, text, False, 5)[1]
            theirs = megabytes / library_seconds(library, text, 3)
            cells += [f"{own:.1f}", f"{theirs:.1f}", f"{own / theirs:.1f} x"]
        rows.append("| " + " | ".join(cells) + " |")
    print("| vocabulary | beside | MB compared | tokens, all equal | C headers, MB/s | theirs | ratio "
          "| mixed scripts, MB/s | theirs | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
