"""The text of `hadal compile --emit=torch`, without PyTorch.

    check_text.py HADAL TESTS OUT [--update]     TESTS: this project's tests/; OUT: a folder for what is written

- What is written for the models of WRITTEN is what lies beside this file (--update writes it anew), but for what is
  copied from torch/, which is as it is there.
- Of all golden models and published families (in the short set: each fourth) the file is Python, and its functions read
  only names that exist: arguments, variables, functions of the file, builtins.
- It does not grow with the number of layers.
"""
import ast
import builtins
import difflib
import json
import os
import subprocess
import sys

WRITTEN = ["standard", "attnres-block", "kimi-linear", "dreamer-looped", "mhc"]
MOST_LINES = 420  # of a model with 48 layers of one kind
FULL = os.environ.get("HADAL_FULL") == "1"


def compile_torch(hadal, folder, out):
    done = subprocess.run([hadal, "compile", folder, "--emit=torch", "-o", os.path.join(out, "written")],
                          capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    with open(os.path.join(out, "written.py")) as f:
        return f.read(), None


def own_part(text):
    names, ops, own = (text.index(f"\n# {mark}") for mark in ("What a checkpoint", "---- ops", "---- the model"))
    if "\n# ---- derived weights" in text:
        own = text.index("\n# ---- derived weights")
    return text[names + 1:ops] + text[own:]


def not_copied(text, root):
    """Functions and classes of the copied parts that are not in torch/ as they are here."""
    own = own_part(text)
    sources = ""
    for name in ("module.py", "ops.py"):
        with open(os.path.join(root, "torch", name)) as f:
            sources += f.read()
    parts = [ast.get_source_segment(text, node) for node in ast.parse(text).body
             if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return [part.split("\n")[0] for part in parts if part not in own and part not in sources]


def unknown_names(text):
    """Names that functions read and nothing defines."""
    tree = ast.parse(text)
    known = set(dir(builtins))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, ast.Assign):
            known |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {(a.asname or a.name).split(".")[0] for a in node.names}
    out = []
    for f in ast.walk(tree):
        if not isinstance(f, ast.FunctionDef):
            continue
        own = {a.arg for a in f.args.args + ([f.args.vararg] if f.args.vararg else [])}
        own |= {n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        out += [f"{f.name}: {n.id}" for n in ast.walk(f) if isinstance(n, ast.Name) and n.id not in own | known]
    return out


def deeper(folder, out, layers):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    config["num_hidden_layers"] = layers
    path = os.path.join(out, "deep")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    return path


def main(hadal, tests, out, update):
    os.makedirs(out, exist_ok=True)
    here, failed = os.path.dirname(os.path.abspath(__file__)), []
    for case in WRITTEN:
        text, error = compile_torch(hadal, os.path.join(tests, "golden", case), out)
        if error:
            failed.append(f"{case}: {error}")
            continue
        failed += [f"{case}: not as in torch/: {part}" for part in not_copied(text, os.path.dirname(tests))]
        wanted = own_part(text)
        path = os.path.join(here, case + ".txt")
        if update:
            with open(path, "w") as f:
                f.write(wanted)
        with open(path) as f:
            kept = f.read()
        if kept != wanted:
            failed += difflib.unified_diff(kept.split("\n"), wanted.split("\n"), path, "written now", lineterm="")
            failed.append(f"{case}: if this is meant: check_text.py ... --update")
    folders = [os.path.join(tests, kind, name) for kind in ("golden", "published")
               for name in sorted(os.listdir(os.path.join(tests, kind)))]
    folders = [f for f in folders if os.path.exists(os.path.join(f, "config.json"))]
    for number, folder in enumerate(folders):
        if not FULL and number % 4:
            continue
        text, error = compile_torch(hadal, folder, out)
        if error and "is quantised" not in error:
            failed.append(f"{folder}: {error}")
        if text:
            failed += [f"{folder}: nothing defines {name}" for name in unknown_names(text)]
    for case in ("standard", "attnres-full", "denseformer", "mrla"):
        text, error = compile_torch(hadal, deeper(os.path.join(tests, "golden", case), out, 48), out)
        if error or text.count("\n") > MOST_LINES:
            failed.append(f"{case} of 48 layers: {error or str(text.count(chr(10))) + ' lines'}")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], "--update" in sys.argv[4:]))
