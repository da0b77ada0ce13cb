#!/usr/bin/env python3
"""Makes the folders tests/text/tiktoken-* and what the tiktoken library says about them.

    pip install tiktoken tokenizers
    tests/tools/make_tiktoken.py tests/text

Each has a tiktoken.model and the tokenizer_config.json of Kimi's models, small: the tokens of kimi.json, and tokens drawn
at random of few letters, which can be put together in many ways. expected_tiktoken.json is as expected.json is. ctest
reads the stored files and needs neither Python nor the library."""
import base64
import json
import os
import random
import sys

import tiktoken

from make_tokenizers import CORPUS, INVALID, KIMI, text_of

SPECIALS = 258
NAMES = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True), 4: ("<think>", False), 7: ("<|endoftext|>", True), 9: ("[终]", False), 200: ("[PAD]", True)}
MORE = ["[BOS]hi[EOS] <|im_user|>x<|im_end|>", "<think>ok</think>[终] <|reserved_token_{}|><|reserved_token_1|>", "abcabcabcaabbcc", "aabbaaabcbcacbacbcabcbabcbcabc", "abc" * 40 + "ba" * 40]


def byte_characters():
    """GPT-2's characters of bytes, back to bytes"""
    printable = [b for b in range(256) if chr(b).isprintable() and b != 0x20 and b < 256]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(0x100 + i): b for i, b in enumerate(others)}}


def of_kimi(out):
    with open(os.path.join(out, "kimi.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    of = byte_characters()
    return [bytes(of[c] for c in token) for token, _ in sorted(vocab.items(), key=lambda item: item[1])]


def of_letters(rng):
    tokens = [bytes([b]) for b in range(256)]
    rng.shuffle(tokens)
    words = {bytes(rng.choice(b"abc") for _ in range(rng.randrange(2, 7))) for _ in range(240)}
    return tokens + rng.sample(sorted(words), len(words))


def write(folder, tokens):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tiktoken.model"), "wb") as f:
        f.writelines(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    named = {str(len(tokens) + i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special} for i, (name, special) in NAMES.items()}
    config = {"added_tokens_decoder": named, "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}, "bos_token": "[BOS]", "eos_token": "[EOS]",
              "clean_up_tokenization_spaces": False, "model_max_length": 1048576, "tokenizer_class": "TikTokenTokenizer"}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    names = {NAMES.get(i, (f"<|reserved_token_{len(tokens) + i}|>", True))[0]: len(tokens) + i for i in range(SPECIALS)}
    return tiktoken.Encoding(name="made", pat_str=KIMI, mergeable_ranks={token: rank for rank, token in enumerate(tokens)}, special_tokens=names)


def expectations(encoding, texts, rng):
    hidden = {encoding.encode(name, allowed_special="all")[0] for name, special in NAMES.values() if special}
    hidden |= {i for i in range(encoding.n_vocab - SPECIALS, encoding.n_vocab) if encoding.decode([i]).startswith("<|reserved_token_")}

    def both(ids, like=None):
        made = [encoding.decode([i for i in ids if i not in hidden]), encoding.decode(ids)]
        return [None if like is not None and t == like else t for t in made]

    ids = [encoding.encode(t, allowed_special="all") for t in texts]
    drawn = [[rng.randrange(encoding.n_vocab) for _ in range(length)] for length in (1, 2, 3, 5, 8, 13, 40) for _ in range(3)]
    return {"around": [[], []], "ids": ids, "texts": [both(i, t) for i, t in zip(ids, texts)], "drawn": [[i, *both(i)] for i in drawn]}


def main():
    out, rng = sys.argv[1], random.Random(1)
    inputs = [t.encode() for t in CORPUS] + INVALID
    expected = {"library": "tiktoken " + tiktoken.__version__, "corpus": None, "tokenizers": {}}
    kinds = {"tiktoken-kimi": of_kimi(out), "tiktoken-letters": of_letters(rng)}
    inputs += [t.replace("{}", str(len(kinds["tiktoken-kimi"]) + 5)).encode() for t in MORE]
    expected["corpus"] = [t.hex() for t in inputs]
    for name, tokens in kinds.items():
        encoding = write(os.path.join(out, name), tokens)
        expected["tokenizers"][name] = expectations(encoding, [text_of(t) for t in inputs], rng)
    with open(os.path.join(out, "expected_tiktoken.json"), "w", encoding="utf-8") as f:
        json.dump(expected, f, ensure_ascii=True, separators=(",", ":"))


main()
