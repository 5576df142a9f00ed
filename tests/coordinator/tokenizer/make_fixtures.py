#!/usr/bin/env python3
"""Makes tests/coordinator/tokenizer/fixtures: small vocabularies, texts, and the ids that tiktoken
and tokenizers (PyPI) give for them.

Usage: make_fixtures.py, with tiktoken and tokenizers installed. Each folder is what a model
directory holds; in it, NAME.ids are the ids of texts/NAME: a line for text that yields no special
token, a line where special tokens are allowed, which is "=" if it is the same.
"""
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FIXTURES = HERE / "fixtures"
sys.path.insert(0, str(ROOT / "tests" / "bench"))
import tokenizers_side_by_side as side_by_side  # noqa: E402

SPECIALS = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_end|>x", "<|im_user|>", "<think>"]
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
PROSE = """The prefix state holds what a decoder needs. We'll see that it's small, isn't it?
線形注意の状態は小さい。前缀状态很小，可以保存下来，下次再用。한국어 문장도 있습니다.
Состояние префикса невелико и хранится. Η κατάσταση είναι μικρή. ราคา ภาษาไทย हिन्दी पाठ
éàü naïve façade Ångström 12 345 6789 3.14159 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 ① ½ Ⅷ ٣٤٥
"""


def texts():
    rng = random.Random(7)
    source = (ROOT / "coordinator/front/request_check.cc").read_text()[:1800]
    every_kind = ["", "a", " ", "\n", "\r\n", "'s", "a\u0301", "ſ'ſ K'K", "\u180ea \u200bb\u0085c"]
    white = "".join(rng.choice([" ", "  ", "\n", "\r\n", "\r", "\t", "\u00a0", "\u3000", "\u2028", "x",
                                "Y", "7", ".", "中"]) for _ in range(350))
    broken = bytearray(side_by_side.mixed(900, rng, SPECIALS))
    for _ in range(40):
        broken[rng.randrange(len(broken))] = rng.randrange(256)
    made = {
        "source": source.encode(), "prose": PROSE.replace("\n", "\r\n").encode(),
        "white_space": white.encode(), "short": "\n".join(every_kind).encode(),
        "mixed": side_by_side.mixed(1800, rng, SPECIALS),
        "code_points": side_by_side.random_code_points(900, rng),
        "not_utf8": bytes(broken) + b"\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80\xff\xfe\xe4\xb8",
        "specials": b"".join(text.encode() for text in
                             ["x [BOS]<|im_end|>x<|im_end|> <|im_", "end|> <think>\n", "[EOS", "] A<b>B",
                              " <b> x<b>\t\n y  <sp>  z<w>w <w> w", "\u4e2d[BOS]\u6587 e\u0301"]),
        "runs": ("ab" * 130 + " " * 90 + "\n" * 70 + "9" * 70 + "中" * 66 + "!" * 70 +
                 "A" * 70 + "e" + "\u0301" * 70).encode(),
    }
    return made


def train(vocabulary_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=vocabulary_size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    files = sorted((ROOT / "coordinator/front").glob("*.cc"))
    corpus = [path.read_text() for path in files] + [PROSE] * 20
    tokenizer.train_from_iterator(corpus, trainer)
    return json.loads(tokenizer.to_str())["model"]


def added(first, tokens, **flags):
    """tokens: content, or (content, flags)."""
    made = []
    for offset, token in enumerate(tokens):
        content, own = token if isinstance(token, tuple) else (token, {})
        made.append({"id": first + offset, "content": content, "single_word": False,
                     "lstrip": False, "rstrip": False, "normalized": False, "special": True,
                     **flags, **own})
    return made


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(*inner):
    return {"type": "Sequence", "pretokenizers": list(inner)}


def library_file(model, pre_tokenizer, tokens, normalizer=None, ignore_merges=False, pairs=True):
    merges = [pair if pairs else " ".join(pair) for pair in model["merges"]]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": byte_level(),
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
                      "vocab": model["vocab"], "merges": merges}}


def directories():
    """By folder: files of a model directory."""
    model = train(640)
    first = len(model["vocab"])
    plain = added(first, SPECIALS)
    odd = added(first, SPECIALS + [
        ("<b>", {"special": False, "lstrip": True, "rstrip": True, "normalized": True}),
        ("<w>", {"special": False, "single_word": True}), ("<sp>", {"special": False}),
        ("  z", {"special": False, "normalized": True})])
    files = {
        "gpt2": library_file(model, byte_level(regex=True), plain, pairs=False),
        "prefix": library_file(model, byte_level(prefix=True, regex=True), odd),
        "llama": library_file(model, sequence(split(LLAMA), byte_level()), plain, ignore_merges=True),
        "qwen": library_file(model, sequence(split(QWEN), byte_level()), odd, {"type": "NFC"}),
        "digits": library_file(
            model, sequence({"type": "Digits", "individual_digits": True}, split(r"\s+$"),
                            split("[一-龥぀-ゟ゠-ヿ]+"), split(r"[\r\n]", "Removed"),
                            split(r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|\s+(?!\S)|.", "Removed", True),
                            byte_level()), odd,
            {"type": "Sequence", "normalizers": []})}
    made = {name: {"tokenizer.json": json.dumps(file, ensure_ascii=False, separators=(",", ":"))}
            for name, file in files.items()}
    made["kimi"] = kimi_files(model)
    return made


def kimi_files(model):
    import base64
    byte_of = {character: byte for byte, character in side_by_side.byte_characters().items()}
    tokens = sorted(model["vocab"], key=lambda token: (len(token) > 1, model["vocab"][token]))
    lines = [f"{base64.b64encode(bytes(byte_of[c] for c in token)).decode()} {rank}"
             for rank, token in enumerate(tokens)]
    # Where one special token starts with another, tiktoken's choice follows from a hash table.
    specials = [content for content in SPECIALS if content != "<|im_end|>x"]
    decoder = {str(len(tokens) + 3 * i): {"content": content, "lstrip": False, "rstrip": False,
                                          "single_word": False, "normalized": False,
                                          "special": content != "<think>"}
               for i, content in enumerate(specials)}
    config = {"added_tokens_decoder": decoder, "tokenizer_class": "TikTokenTokenizer"}
    return {"tiktoken.model": "\n".join(lines) + "\n", "tokenizer_config.json": json.dumps(config)}


def main():
    (FIXTURES / "texts").mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (FIXTURES / "texts" / name).write_bytes(text)
    for folder, files in directories().items():
        directory = FIXTURES / folder
        directory.mkdir(exist_ok=True)
        for name, content in files.items():
            (directory / name).write_text(content)
        kind = side_by_side.Tiktoken if folder == "kimi" else side_by_side.Tokenizers
        library = kind(directory)
        for name, text in texts().items():
            plain, special = (" ".join(map(str, side_by_side.reference_ids(library, text, special)))
                              for special in (False, True))
            (directory / f"{name}.ids").write_text(
                f"{plain}\n{'=' if special == plain else special}\n")
    size = sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file())
    print(f"{size} bytes in {FIXTURES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
