#!/usr/bin/env python3
"""Folders with other files beside tokenizer.json: ids of hadal and of transformers.

    tokenizer_folders.py LIBHADALTEXT WORK_FOLDER [HADAL]

With HADAL, the command, also what transformers 5 makes of each tokenizer of tests/text under each class that has steps of its own: ids are the same, or a
note says that they may not be. Made of tests/text/qwen.json: what tokenizer_config.json, special_tokens_map.json and added_tokens.json may say. Under transformers 5 it compares tokens and
their flags; under transformers 4 what stands around a text too, where add_bos_token or add_eos_token is given (5 does not read them beside a
tokenizer.json; docs/text.md). Not a test of ctest: what it finds becomes a case of unit/test_tokenizer_config.
"""
import copy
import ctypes
import itertools
import json
import os
import random
import subprocess
import sys

import transformers
from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ("Hello world", "<|im_start|>Hello  <|im_end|>or x world", " wor ld")
OLD = transformers.__version__.startswith("4.")
DROP = object()
with open(os.path.join(HERE, "..", "text", "qwen.json"), encoding="utf-8") as f:
    FILE = json.load(f)
TOKENS = {t["content"]: t["id"] for t in FILE["added_tokens"]}
FIRST, LAST = list(TOKENS)[:2]


def template(before, after):
    def special(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}
    names = [FIRST] * before + [LAST] * after
    return {"type": "TemplateProcessing", "single": [special(FIRST)] * before + [{"Sequence": {"id": "A", "type_id": 0}}] + [special(LAST)] * after,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [TOKENS[n]], "tokens": [n]} for n in names}}


def token(content, **flags):
    return dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) | flags


def around():
    """What stands around a text, by each class that is published."""
    classes = ("LlamaTokenizerFast", "LlamaTokenizer", "GemmaTokenizer", "CohereTokenizerFast", "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast", "GPT2Tokenizer",
               "Qwen2Tokenizer", DROP)
    for cls, bos, eos, processor in itertools.product(classes, (True, False, None, DROP), (True, False, DROP), (None, "as it is", template(1, 0), template(0, 1), template(1, 1))):
        if bos is not DROP or eos is not DROP:
            yield dict(tokenizer_class=cls, add_bos_token=bos, add_eos_token=eos, bos_token=FIRST, eos_token=LAST, unk_token=LAST), dict(post_processor=processor), {}


# What names tokens, with a word for each; objects of tokenizer_config.json say that they are tokens.
BOTH = {"pad_token": str, "sep_token": str, "image_token": str, "audio_token": str, "extra_special_tokens": lambda w: [w], "additional_special_tokens": lambda w: [w]}
OF_CONFIG = BOTH | {"model_specific_special_tokens": lambda w: {"a_token": w}, "extra_special_tokens": lambda w: {"b": w} if w < "h" else [w],
                    "video_token": lambda w: {"__type": "AddedToken"} | token(w, lstrip=True)}
OF_MAP = BOTH | {"video_token": lambda w: token(w, rstrip=True), "split_special_tokens": lambda w: w > "k"}


def some_names(draw, most, names):
    return {name: names[name](draw.choice(("wor", "world", "Hell", "ello", "new", "or x"))) for name in draw.sample(sorted(names), draw.randint(0, most))}


def tokens():
    base = dict(tokenizer_class="PreTrainedTokenizerFast")
    top = max(max(TOKENS.values()), max(FILE["model"]["vocab"].values()))
    for decoder in ({top + 1: token("wor")}, {top + 9: token("wor")}, {top + 9: token("wor"), top + 5: token("Hell")}, {3: token("ello")}, {TOKENS[FIRST]: token(FIRST, lstrip=True, rstrip=True)},
                    {top + 1: token("wor", special=False, normalized=True)}, {top + 1: token("or", single_word=True)}, {}):
        yield base | dict(added_tokens_decoder={str(k): v for k, v in decoder.items()}), {}, {}
    for fields in (dict(pad_token="world"), dict(additional_special_tokens=["world", "Hell"]), dict(split_special_tokens=True), dict(extra_special_tokens={"a_token": "world"}),
                   dict(pad_token={"__type": "AddedToken", "content": "world", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False}), dict(model_max_length=2)):
        yield base | fields, {}, {}
    for files in ({"special_tokens_map.json": {"additional_special_tokens": ["world"]}}, {"added_tokens.json": {"world": top + 1}}, {"added_tokens.json": {"world": top + 90, "Hell": top + 30}}):
        yield base, {}, files
        yield base | dict(added_tokens_decoder={str(TOKENS[FIRST]): token(FIRST)}), {}, files
    for number in range(0 if OLD else 150):     # fields that name tokens, several at a time; 4 knows fewer of them
        draw = random.Random(number)
        yield base | some_names(draw, 3, OF_CONFIG), {}, {"special_tokens_map.json": some_names(draw, 2, OF_MAP)} if draw.random() < 0.5 else {}
    for cls, prefix, given in itertools.product(("GPT2Tokenizer", "Qwen2Tokenizer"), (True, False), (True, False, DROP)):
        yield dict(tokenizer_class=cls, add_prefix_space=given), dict(pre_tokenizer=dict(type="ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=True)), {}


def write(folder, config, changes, files):
    os.makedirs(folder, exist_ok=True)
    file = copy.deepcopy(FILE) | {k: v for k, v in changes.items() if v != "as it is"}
    config = {k: v for k, v in config.items() if v is not DROP}
    for name, value in {"tokenizer.json": file, "tokenizer_config.json": config, "config.json": {"model_type": "llama"}, **files}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f)


def library(path):
    lib = ctypes.CDLL(path)
    lib.hadal_tokenizer_open.restype = ctypes.c_void_p
    lib.hadal_tokenizer_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    lib.hadal_tokenizer_encode.restype = ctypes.c_int64
    lib.hadal_tokenizer_encode.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64]
    return lib


def ids_of(lib, folder):
    message = ctypes.create_string_buffer(600)
    t = lib.hadal_tokenizer_open(folder.encode(), message, 600)
    if not t:
        return message.value.decode()
    out = []
    for text in TEXTS:
        ids = (ctypes.c_int32 * 200)()
        out.append(list(ids[:lib.hadal_tokenizer_encode(t, text.encode(), len(text.encode()), 1, ids, 200)]))
    return out


def steps():
    """Each tokenizer of tests/text under each class, and without one; model types have classes of their own."""
    classes = ("LlamaTokenizerFast", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizerFast", "GPTNeoXTokenizerFast", "GPT2Tokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer",
               "PreTrainedTokenizerFast", DROP)
    for name in sorted(os.listdir(os.path.join(HERE, "..", "text"))):
        path = os.path.join(HERE, "..", "text", name)
        if not name.endswith(".json") or name.startswith("expected"):
            continue
        with open(path, encoding="utf-8") as f:
            file = json.load(f)
        for cls, kind in itertools.product(classes, ("llama", "mistral", "qwen2", "qwen3", "zaya", "olmo2")):
            for legacy in (DROP, True) if cls is not DROP and "Llama" in cls else (DROP,):
                yield dict(tokenizer_class=cls, legacy=legacy), file, {"config.json": {"model_type": kind}}


def notes_of(hadal, folder):
    done = subprocess.run([hadal, "run", os.path.join(HERE, "..", "published", "llama"), "--interpret", "--tokenizer", folder, "--prompt", "Hello", "--top", "1"], capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if "note: " in line]


def main():
    lib, work, hadal = library(sys.argv[1]), sys.argv[2], (sys.argv + [None])[3]
    wrong = compared = 0
    for number, (config, changes, files) in enumerate(itertools.chain(tokens(), around() if OLD else (), steps() if hadal and not OLD else ())):
        folder = os.path.join(work, str(number))
        write(folder, config, changes, files)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            expected = [tokenizer(text)["input_ids"] for text in TEXTS]
        except Exception:                           # whatever transformers raises: it says nothing about ids
            continue
        compared += 1
        got = ids_of(lib, folder)
        if got != expected and not ("config.json" in files and notes_of(hadal, folder)):
            wrong += 1
            print({k: v for k, v in config.items() if v is not DROP}, list(changes), list(files), f"\n  hadal        {got}\n  transformers {expected}")
    print(f"{compared} folders compared, {wrong} differ")
    sys.exit(1 if wrong else 0)


main()
