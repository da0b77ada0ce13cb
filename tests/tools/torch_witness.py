"""Modules of `hadal compile --emit=torch` against the evaluator and against gradients computed elsewhere.

    torch_witness.py HADAL FOLDER...     FOLDER: config.json, model.safetensors, expected.safetensors;
                                         gradients.safetensors (targets, loss, grad.NAME) if there is one

Needs PyTorch. For each folder: logits in float64 against `hadal run --interpret` (1e-6 of the largest), and
gradients by autograd against the file, or where there is none against `hadal gradients --interpret`: the largest
difference over the larger of the tensor's own largest entry and 1e-6 of the largest of all gradients. Prints a line a
folder; exit 1 if one differs, 77 without PyTorch.
"""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I32": torch.int32, "I64": torch.int64}
MOST = 1e-6


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            values = torch.frombuffer(data[a:b], dtype=DTYPES[t["dtype"]]) if b > a else torch.zeros(0)
            out[name] = values.reshape(t["shape"])
    return out


def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<H", data[8:10])[0]
    head = eval(data[10:10 + n].decode())
    return torch.frombuffer(bytearray(data[10 + n:]), dtype=torch.float32).reshape(head["shape"])


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def module_of(hadal, folder, out, *options):
    run(hadal, "compile", folder, "--emit=torch", "-o", os.path.join(out, "written"), *options)
    spec = importlib.util.spec_from_file_location("written", os.path.join(out, "written.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def apart(got, wanted, least=0.0):
    if wanted.numel() == 0:
        return 0.0
    wanted = wanted.double()
    most = max(wanted.abs().max().item(), least)
    return ((got.double() - wanted).abs().max().item() / most) if most else got.abs().max().item()


def check(hadal, folder):
    expected = read(os.path.join(folder, "expected.safetensors"))
    tokens = expected["tokens"]
    with tempfile.TemporaryDirectory() as out:
        model = module_of(hadal, folder, out).Model().double().load(folder)
        logits = model(tokens)
        logits = logits["logits"] if isinstance(logits, dict) else logits
        batch = model(torch.stack([tokens.flip(0), tokens]))
        batch = batch["logits"] if isinstance(batch, dict) else batch
        if apart(batch[1].detach(), logits.detach()) > 1e-12:
            raise RuntimeError("a batch has other logits than its sequences")
        listed = ",".join(str(t) for t in tokens.tolist())
        run(hadal, "run", folder, "--interpret", "--tokens", listed, "--logits", out + "/logits.npy")
        forward = apart(logits.detach(), read_npy(out + "/logits.npy"))
        path = os.path.join(folder, "gradients.safetensors")
        targets = tokens.roll(-1).to(torch.int32) % logits.shape[-1]  # which may lack the padding of a vocabulary
        targets[-1] = -1
        if not os.path.exists(path):
            path = out + "/gradients.safetensors"
            run(hadal, "gradients", folder, "--interpret", "--tokens", listed, "--targets", ",".join(str(t) for t in targets.tolist()), "-o", path)
        wanted = read(path)
        targets = wanted.get("targets", targets)
    loss = model.loss(tokens, targets)
    loss.backward()
    own = dict(model.named_parameters())
    grads = {n[len("grad."):]: g for n, g in wanted.items() if n.startswith("grad.")}
    most = max(g.abs().max().item() for g in grads.values() if g.numel())
    worst, where = apart(loss.detach().reshape(1), wanted["loss"].reshape(1)), "loss"
    for name, grad in grads.items():
        if name not in own and name not in model.kept:
            raise RuntimeError(f"the module has no parameter {name}")
        got = own[name].grad if name in own else None
        got = torch.zeros_like(grad) if got is None else got
        e = apart(got.reshape(grad.shape), grad, MOST * most)
        if not e <= worst:
            worst, where = e, name
    return forward, worst, where


def main(hadal, folders):
    failed = 0
    for folder in folders:
        try:
            forward, backward, where = check(hadal, folder)
        except Exception as e:  # the next folder is another model
            if "is quantised" in str(e):
                continue
            if "lacks engram.token_map" in str(e):
                print(f"skip {folder}: its table of ids is made of tokenizer.json", flush=True)
                continue
            print(f"FAIL {folder}: {type(e).__name__} {e}", flush=True)
            failed += 1
            continue
        good = forward <= MOST and backward <= MOST
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {os.path.basename(folder.rstrip('/'))}: logits {forward:.1e}, gradients {backward:.1e} ({where})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
