#!/usr/bin/env python3
"""Makes tests/text/jinja.json: what jinja2, set up by transformers, makes of snippets and templates.

    tests/tools/make_templates.py            # with transformers and jinja2 of this python

The file has the variables of the snippets, [snippet, output] (null: an error; {"raised": text}: one of the template's own),
the conversations, and by template of tests/text/templates and conversation the length and FNV-1a of the output, or the same
for errors."""
import copy
import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as transformers_templates
from chat_conversations import CONVERSATIONS
from chat_snippets import SNIPPETS, VARIABLES

FOLDER = pathlib.Path(__file__).parent.parent / "text"
WHEN = 1764200000  # the time of strftime_now
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(WHEN, datetime.timezone.utc)


def render(template, variables):
    """The output; None after an error; {"raised": message} where the template raised one."""
    try:
        return transformers_templates._compile_jinja_template(template).render(**copy.deepcopy(variables))
    except Exception as error:
        return {"raised": str(error)} if type(error).__name__ == "TemplateError" else None


def all_variables(conversation):
    """The variables as apply_chat_template passes them on."""
    out = {**TOKENS, "tools": None, "documents": None, **copy.deepcopy(conversation)}
    out["messages"] = transformers_templates._alias_reasoning_fields(out["messages"])
    return out


def digest(output):
    if not isinstance(output, str):
        return output
    data = output.encode()
    hashed = 0xCBF29CE484222325
    for byte in data:
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return [len(data), f"{hashed:016x}"]


def main():
    transformers_templates.datetime = Clock
    out = {
        "when": WHEN,
        "variables": VARIABLES,
        "snippets": [[s, render(s, VARIABLES)] for s in SNIPPETS],
        "conversations": [[name, all_variables(c)] for name, c in CONVERSATIONS],
        "templates": {},
    }
    for path in sorted((FOLDER / "templates").glob("*.jinja")):
        template = path.read_text()
        out["templates"][path.name] = [digest(render(template, v)) for _, v in out["conversations"]]
    lines = [f"{json.dumps(k)}: [\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in v) + "\n]"
             if k in ("snippets", "conversations") else f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}"
             for k, v in out.items()]
    (FOLDER / "jinja.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
