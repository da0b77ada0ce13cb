#!/usr/bin/env python3
"""Makes tests/text/folded.json: for tokenizers of tests/text the number that each token has where tokens of like texts share one, by the
steps of published code for n-gram tables (Engram), which the tokenizers library carries out.

    pip install tokenizers
    tests/tools/make_folded.py tests/text
"""
import json
import os
import sys

from tokenizers import Regex, Tokenizer, normalizers

NAMES = "gpt2 deepseek llama3 qwen gemma odd mistral digits first spaces llama2 o200k".split()
SPACE = "\ue000"    # stands for a text that is one space, while ends are trimmed
FOLD = normalizers.Sequence([normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
                             normalizers.Replace(Regex(r"[ \t\r\n]+"), " "), normalizers.Replace(Regex(r"^ $"), SPACE),
                             normalizers.Strip(), normalizers.Replace(SPACE, " ")])


def key_of(tokenizer, i):
    text, token = tokenizer.decode([i], skip_special_tokens=False), tokenizer.id_to_token(i)
    return token if "\ufffd" in text and token is not None else FOLD.normalize_str(text) or text


def numbers(path):
    tokenizer, seen = Tokenizer.from_file(path), {}
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    return [seen.setdefault(key_of(tokenizer, i), len(seen)) for i in range(size)]


if __name__ == "__main__":
    out = sys.argv[1]
    with open(os.path.join(out, "folded.json"), "w", encoding="utf-8") as f:
        lines = [f'"{name}": ' + json.dumps(numbers(os.path.join(out, name + ".json")), separators=(",", ":")) for name in NAMES]
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
