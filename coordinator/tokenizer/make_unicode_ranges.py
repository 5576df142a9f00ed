#!/usr/bin/env python3
"""Writes unicode_ranges.inc: general categories and the Han script of every code point, as tiktoken
(PyPI) sees them, and checks that Hugging Face's tokenizers see the same.

Usage: make_unicode_ranges.py, with tiktoken and tokenizers installed.
"""
import itertools
import pathlib

import tiktoken
from tokenizers import Regex, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn "
              "Cs").split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcd"
SURROGATES = range(0xD800, 0xE000)
EVERY = "".join(chr(c) for c in range(0x110000) if c not in SURROGATES)
COLUMNS = 92


def matched_by_tiktoken(pattern):
    ranks = {bytes([value]): value for value in range(256)}
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    # What no match covers yields no token.
    return {ord(c) for c in bytes(encoding.encode_ordinary(EVERY)).decode()}


def matched_by_tokenizers(pattern):
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    return {ord(c) for piece, _ in split.pre_tokenize_str(EVERY) for c in piece}


def matched(pattern):
    ours = matched_by_tiktoken(pattern)
    assert ours == matched_by_tokenizers(pattern), pattern
    return ours


def run_lengths(letters):
    """Each letter and, where it is more than 1, how many of it follow one another."""
    for letter, run in itertools.groupby(letters):
        length = sum(1 for _ in run)
        yield letter if length == 1 else f"{letter}{length}"


def constant(name, letters):
    lines, line = [], ""
    for run in run_lengths(letters):
        if len(line) + len(run) > COLUMNS:
            lines.append(line)
            line = ""
        line += run
    lines.append(line)
    return f"constexpr char {name}[] =\n" + "\n".join(f'    "{line}"' for line in lines) + ";\n"


def main():
    category_of = ["d" if c in SURROGATES else "" for c in range(0x110000)]
    for category, letter in zip(CATEGORIES, LETTERS):
        if category == "Cs":
            continue
        for code_point in matched(f"\\p{{{category}}}"):
            assert category_of[code_point] == "", hex(code_point)
            category_of[code_point] = letter
    assert all(category_of)
    han = matched(r"\p{Han}")
    text = ("// Made by make_unicode_ranges.py: run lengths over all code points, from 0 on. A letter and,\n"
            "// where it is more than 1, how many code points in a row have it.\n"
            f"// Categories: {' '.join(f'{l} {c}' for l, c in zip(LETTERS[:15], CATEGORIES))}\n"
            f"// {' '.join(f'{l} {c}' for l, c in zip(LETTERS[15:], CATEGORIES[15:]))}\n"
            + constant("kCategoryRuns", category_of)
            + "// H: the Han script; -: another.\n"
            + constant("kHanRuns", ("H" if c in han else "-" for c in range(0x110000))))
    target = pathlib.Path(__file__).with_name("unicode_ranges.inc")
    target.write_text(text)
    print(f"{target.name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
