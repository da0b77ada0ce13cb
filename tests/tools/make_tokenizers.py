#!/usr/bin/env python3
"""Makes the tokenizers of tests/text and what the tokenizers library says about them.

    pip install tokenizers
    tests/tools/make_tokenizers.py tests/text

Each NAME.json is a small tokenizer.json of a kind that published models have, trained on the pages of this
project and on the corpus below. expected.json holds, for each, the ids of every text of the corpus with and
without the template, texts of ids that are drawn at random, and how patterns cut texts. ctest reads the stored
files and needs neither Python nor the library."""
import json
import os
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
          r"|\s+(?!\S)|\s+")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{ENDING}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{ENDING}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]+[{LOWER}&&[^\p{{Han}}]]*{ENDING}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]

CORPUS = [
    "", " ", "  ", "a", " a", "a ", "Hello world", "Hello, world! How are you today?", "hello\nworld", "line\r\nline\r\n\r\n  indented\n\n\n",
    "\t\tif (x == 1) {\n\t\t\treturn y[0] += 2;\n\t\t}\n", "    four spaces\n        eight\n", "trailing   ", "   leading", "a  b   c    d",
    "I'm you're he'll we've they'd it's DON'T I'LL 'S 'tis l'été ’s",
    "1 12 123 1234 12345 123456 1234567890 3.14159 1,000,000 -42 1e-10 0xFF ½ ² Ⅷ ٣٤٥ १२३ 一二三",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case HTTPServer v1.2.3-rc4",
    "https://example.com/path?q=1&r=%20#frag user@example.org", "naïve café Zürich Ångström ﬁne ﬀ œuvre straße",
    "nai\u0308ve cafe\u0301 A\u030angstro\u0308m q\u0323\u0307 q\u0307\u0323 \u1e9b\u0323", "Привет, мир! Как дела?", "Γειά σου Κόσμε ΣΊΣΥΦΟΣ σίσυφος", "שלום עולם וְאָהַבְתָּ", "مرحبا بالعالم لَا إِلٰهَ",
    "हिन्दी में नमस्ते क्षत्रिय", "ไทย สวัสดีชาวโลก", "你好，世界。中文分词测试", "これは日本語のテストです。カタカナとひらがな", "안녕하세요 세계 한국어 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "Tiếng Việt có dấu: ổ ự ẫ", "አማርኛ ქართული հայերեն ᏣᎳᎩ ᚠᚢᚦ 𐍈𐌰 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱",
    "👍 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☺ 🤷🏾‍♀️ 1️⃣", "e\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308", "zero\u200bwidth\u200djoin\ufeffbom\u00adhyphen",
    "nbsp\u00a0here\u2003em\u3000ideo\u1680ogham\u180emvs\u0085nel\u2028ls\u2029ps", "\u0000nul \u0001\u0002 \u007f \u001b[31mred\u001b[0m".replace("\u0000", ""),
    "“quotes” ‘single’ «guillemets» — dash – en … ellipsis • · ×÷±≠≤≥∞∑∏√∂∫", "!!! ??? ... --- === *** ///\n### # @ $ % ^ & ( ) [ ] { } | \\ ~ `",
    "<s>", "</s>", "<unk>", "<s>text</s>", "text <s> text </s> text", "<|endoftext|>", "a<|endoftext|>b", "<|begin_of_text|>hi<|eot_id|>", "<|im_start|>user\nhi<|im_end|>\n",
    "<think>ok</think> <tool_call>{}</tool_call>", "<|reserved_1|><|reserved_10|><|reserved_100|>", "<mask>", "  <mask>  ", "word<mask>word", "the cat, catalogue cat_ cat2 scat cat", "New York NEW YORK new york",
    "▁under ▁▁ score▁", "<0x41><0xE4>", "Ġbyte Ċ Ä", "ſ K Å ẞ İ ı ǅ ﬃ", "x" * 300, "ab" * 400, "a" * 1000 + "b", " " * 120 + "x", "\n" * 40, "=" * 100, "supercalifragilisticexpialidocious" * 8,
    "日本" * 60, "😀" * 30, "é" * 80, "1" * 77, "The quick brown fox jumps over the lazy dog. " * 5, "a\u0301" * 50,
    "def f(x):\n    \"\"\"Doc.\"\"\"\n    return {k: v for k, v in x.items() if k != 'π'}\n", "\\frac{\\partial u}{\\partial t} = \\nabla^2 u", "col1\tcol2\t\tcol3\r\n1\t2\t\t3\r\n",
]
INVALID = [b"\xff", b"a\xffb", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"ok \x80\x81\x82 ok",
           b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xe4\xbd\xa0\xe5\xa5", b"\xf1\x80\x80\xf1\x80\x80\x80\xf1"]

PATTERNS = [GPT2, LLAMA3, QWEN, CL100K, O200K, KIMI, *DEEPSEEK, r"\s", r"\S+", r"\w+", r"\W", r"\d{2}", r"\D", r"\h+", r"\bcat\b", r"\B.", r"[\w-]+", r"[^\W\d]+",
            r"[a-c[x-z]]+", r"[^a-z&&[^aeiou]]", r"[a-z&&[^aeiou]]+", r"[[a-z]&&\w&&[^m-p]]+", r"[\p{L}&&\p{Lu}]", r"\p{^L}+", r"\P{L}+", r"\p{Han}+", r"\p{Greek}+", r"[\p{Cyrillic}ab]+",
            r"(a|b)+", r"(?i)hello|WORLD", r"x(?i)a|b", r"(?m:l.*e)", r"(?-i:A)b", r"^.+$", r"\A.", r".\z", r"(?<=a)b", r"(?<!a)b", r"(?>a+)b?", r"a{2}", r"a{2,}", r"a{,2}b", r"(?:ab){2,3}?", r"a{2}?b", r"a{1,2}+b", r"a++b", r"a*?b", r"a**b",
            r"a{", r"a{x}", r"{1", r"[\]\-a]+", r"[-a]+", r"[a-]+", r"\u00e9", r"\x{1F600}+", r"[\x20-\x2f]+", r"\t|\n|\r", r"[\n\t]", r"\.|\\|\/", r"[.]{3}", r"a|", r"\p{Lu}\p{Ll}*", r"[^\s\p{L}\p{N}]+"]


def words():
    """Text to train on: the pages of this project."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    for name in ("README.md", "docs/language.md", "docs/testing.md"):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            yield from f.read().split("\n\n")
    yield from CORPUS


def train(tok, size, alphabet=(), special=()):
    tok.train_from_iterator(words(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), special_tokens=list(special), show_progress=False, limit_alphabet=400))
    return tok


def with_model(tok, vocab_order=(), **options):
    """The trained model again, with tokens in front of its vocabulary and other options."""
    state = json.loads(tok.to_str())["model"]
    names = list(vocab_order) + sorted((t for t in state["vocab"] if t not in set(vocab_order)), key=state["vocab"].get)
    tok.model = models.BPE({t: i for i, t in enumerate(names)}, [tuple(m) for m in state["merges"]], **options)
    return tok


def byte_level(split=None, size=512, **model):
    tok = Tokenizer(models.BPE(**model))
    if split is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in split]
        tok.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return train(tok, size, pre_tokenizers.ByteLevel.alphabet())


BYTES = [f"<0x{i:02X}>" for i in range(256)]


def sentencepiece(normalizer, splitter, size=800):
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(" ", "▁") if normalizer is None else normalizer
    tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    train(tok, size, special=["<unk>"])
    with_model(tok, ["<unk>", "<s>", "</s>"] + BYTES, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tok.normalizer = normalizer if normalizer is not None else tok.normalizer
    tok.pre_tokenizer = splitter
    tok.add_special_tokens(["<unk>", "<s>", "</s>"])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok


def template(tok, single):
    names = [t for t in single.split() if not t.startswith("$")]
    return processors.TemplateProcessing(single=single, special_tokens=[(n, tok.token_to_id(n)) for n in names])


def gpt2():
    tok = byte_level()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.add_special_tokens(["<|endoftext|>"])
    return tok


def llama3():
    tok = with_model(byte_level([LLAMA3]), ignore_merges=True)
    tok.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"] + [f"<|reserved_{i}|>" for i in (1, 10, 100)])
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(tok, "<|begin_of_text|> $A")])
    return tok


def qwen():
    tok = byte_level([QWEN])
    tok.normalizer = normalizers.NFC()
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "</think>", "<tool_call>", "</tool_call>")])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def cl100k():
    tok = byte_level([CL100K])
    tok.add_special_tokens(["<|endoftext|>"])
    tok.post_processor = template(tok, "$A <|endoftext|>")
    return tok


def deepseek():
    tok = byte_level(DEEPSEEK)
    tok.normalizer = normalizers.Sequence([])
    tok.add_special_tokens(["<s>", "</s>"])
    tok.post_processor = template(tok, "<s> $A </s>")
    return tok


def kimi():
    return byte_level([KIMI])


def o200k():
    return byte_level([O200K])


def digits():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tok.decoder = decoders.ByteLevel()
    return train(tok, 512, pre_tokenizers.ByteLevel.alphabet())


def llama2():
    tok = sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None)
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = template(tok, "<s> $A")
    return tok


def mistral():
    tok = sentencepiece(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False))
    tok.normalizer = None
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = template(tok, "<s> $A </s>")
    return tok


def gemma():
    tok = sentencepiece(None, pre_tokenizers.Split(" ", "merged_with_previous"))
    tok.add_tokens([AddedToken(t, normalized=False) for t in ("\n\n", "\n\n\n", "▁▁", "<mask>")])
    tok.post_processor = template(tok, "<s> $A")
    return tok


def odd():
    """What is rare: compatible forms, no bytes to fall back to, and added tokens with every option."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(r"\s{2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.decoder = decoders.Metaspace()
    train(tok, 800, special=["<unk>"])
    with_model(tok, ["<unk>"], unk_token="<unk>")
    tok.add_special_tokens(["<unk>", AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    tok.add_tokens([AddedToken("cat", single_word=True), AddedToken("new york", normalized=True), AddedToken("ﬁne", normalized=True), AddedToken("</s>", rstrip=True, normalized=False), AddedToken("<s>", lstrip=True, normalized=False)])
    return tok


def spaces():
    tok = Tokenizer(models.BPE(unk_token="?"))
    tok.normalizer = normalizers.NFD()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace(), pre_tokenizers.Split(Regex("[aeiou]"), "merged_with_next"), pre_tokenizers.Digits()])
    train(tok, 600, special=["?"])
    return with_model(tok, ["?"], unk_token="?", fuse_unk=True)


def first():
    """Metaspace for the first piece only, which is none where white space was taken off the beginning."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Strip()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("merged_with_next"), pre_tokenizers.Metaspace(prepend_scheme="first")])
    tok.decoder = decoders.Metaspace(prepend_scheme="first")
    train(tok, 400, special=["<unk>"])
    return with_model(tok, ["<unk>"], unk_token="<unk>")


KINDS = [gpt2, llama3, qwen, cl100k, deepseek, kimi, o200k, digits, llama2, mistral, gemma, odd, spaces, first]


def text_of(data):
    return data.decode("utf-8", errors="replace")


def drawn(tok, rng):
    n = tok.get_vocab_size()
    for length in (1, 2, 3, 5, 8, 13, 40):
        for _ in range(3):
            yield [rng.randrange(n) for _ in range(length)]
    if tok.token_to_id("<0xE4>") is not None:  # runs of bytes, whole characters and broken ones
        for _ in range(20):
            data = rng.choice(CORPUS[20:35] + CORPUS[57:60]).encode()[: rng.randrange(1, 9)]
            yield [tok.token_to_id(f"<0x{b:02X}>") for b in data] + [rng.randrange(n)]


def both(tok, ids, like=None):
    """The text without and with special tokens; null where it is `like`."""
    made = [tok.decode(ids), tok.decode(ids, skip_special_tokens=False)]
    return [None if like is not None and t == like else t for t in made]


def expectations(tok, texts, rng):
    plain = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    before = tok.encode("", add_special_tokens=True).ids
    around = [[], []]
    for i, single in enumerate(plain):  # the template stands around every text alike
        whole = tok.encode(texts[i], add_special_tokens=True).ids
        if len(single) > 0:
            at = next(k for k in range(len(whole)) if whole[k:k + len(single)] == single)
            around = [whole[:at], whole[at + len(single):]]
            assert around[0] + around[1] == before
    return {"around": around, "ids": plain, "texts": [both(tok, i, t) for i, t in zip(plain, texts)],
            "drawn": [[i, *both(tok, i)] for i in drawn(tok, rng)]}


def cuts(pattern, texts):
    """Lengths in characters."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return [[len(piece) for piece, _ in split.pre_tokenize_str(t)] for t in texts]


def main():
    out = sys.argv[1]
    rng = random.Random(1)
    inputs = [t.encode() for t in CORPUS] + INVALID
    texts = [text_of(t) for t in inputs]
    expected = {"library": "tokenizers " + tokenizers.__version__, "corpus": [t.hex() for t in inputs], "tokenizers": {}}
    for kind in KINDS:
        tok = kind()
        tok.save(os.path.join(out, kind.__name__ + ".json"), pretty=False)
        tok = Tokenizer.from_file(os.path.join(out, kind.__name__ + ".json"))
        expected["tokenizers"][kind.__name__] = expectations(tok, texts, rng)
    short = [t for t in CORPUS[:57] if t][::3] + ["aab aaab ab abab ababab a{ {1 aaaa", "hello HELLO World xA xb B"]
    expected["patterns"] = {"texts": short, "cuts": {p: cuts(p, short) for p in PATTERNS}}
    with open(os.path.join(out, "expected.json"), "w", encoding="utf-8") as f:
        json.dump(expected, f, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
