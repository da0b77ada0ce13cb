#!/usr/bin/env python3
"""Divided models over slow links, each beside what `hadal plan` says of it.

  links.py [--bin build/release/bin] [--ranks 1,2,4] [--links 1G,10G,none,10G/50us] [--types f32,q4] [--shapes small,large]
           [--prefill 512] [--decode 0] [--rounds 3] [--work DIR] [--only-prepare] [--again FILE] [--quick] [--json FILE]

Makes as many network namespaces as there are ranks, joined by a bridge that has a namespace of its own, slows what leaves each of them
(`tc`, a token bucket), starts a rank in each with Open MPI over TCP, and runs `hadal bench`. The hosts of the plan are what `hadal
machine` measures in the same namespaces with as many ranks: all of them share one machine, and each measures what is left to it while
the others are at work. For a slowed link the plan gets the link's rate, and the time that the transport takes without the link.

A link with a latency, RATE/LATENCY, is made by the ranks themselves (hadal bench --link), over shared memory and without namespaces:
messages are delayed by that time. The plan gets both numbers, and the time that the transport takes without the delay.

Needs Open MPI's `mpirun`, and for links without a latency root, `ip` and `tc`. Namespaces are removed whatever happens; nothing of the machine's own network is
touched. --work: a directory for the models, which are compiled if they do not exist; --only-prepare: compiles them and no more. --again: measures
nothing, and prints what the plan predicts now for what was measured when FILE was written with --json. --quick: a model
of two layers and one round, to see that everything runs; its figures mean nothing.
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

SPEC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "specs", "qwen3.hadal")
# Shapes of SPEC, all with AttnRes: one with weights that no cache holds (80 MB in q4), one with weights that an L3 of 32 MB
# holds (25 MB in f32).
SHAPES = {"large": dict(layers=8), "small": dict(layers=6, hidden=256, heads=4, kv_heads=4, head_dim=64, ff=768, vocab=4096),
          "whole": {}, "quick": dict(layers=2, hidden=64, heads=4, kv_heads=4, head_dim=16, ff=128, vocab=256)}
AGENT = """#!/bin/sh
# What mpirun starts in the place of ssh: HOST COMMAND.. in the namespace of that address. Hosts have no files in common that Open MPI
# would not expect.
host=${{1##*.}}
shift
export TMPDIR={folder}/tmp$host
mkdir -p "$TMPDIR"
exec ip netns exec {prefix}$host /bin/sh -c "$*"
"""
# Burst of the token bucket, in seconds of its rate: no more than a late timer leaves unused, so that messages of a token are
# slowed too. gso_max_size, the bytes that TCP hands over at once, is half of that: larger ones would be cut into single
# packets, which cost so much that four hosts on two CPUs reach 0.45 Gbit/s of 1. A queue that is never full drops nothing.
BURST_SECONDS, LEAST_BURST, MOST_SEGMENT, QUEUE = 0.2e-3, 4e3, 65536, "16mb"
BEHIND = ("nice", "-n", "15")  # for the kernel's network thread, whose work a network card would do
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # Open MPI rejects root otherwise
NO_LIMIT = 1e15  # bits per second of a link that takes no time: the transport is all there is to wait for


def bits(rate):
    return float(rate[:-1]) * {"K": 1e3, "M": 1e6, "G": 1e9}[rate[-1]]


def burst_of(rate):
    """The burst, in bytes, of a token bucket of that rate."""
    return max(LEAST_BURST, BURST_SECONDS * bits(rate) / 8)


def fail(text):
    sys.exit(f"links.py: {text}")


def run(line, **more):
    done = subprocess.run(line, capture_output=True, text=True, **more)
    if done.returncode:
        fail(f"{' '.join(line)}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- links -----------------------------------------------------------------------------------------


class Network:
    """Hosts 1 .. n, each a namespace with one interface, eth0; its address ends in the host's number."""

    def __init__(self, hosts, folder):
        self.prefix, self.hosts = f"hadal{os.getpid()}_", hosts
        self.agent = os.path.join(folder, "agent.sh")
        with open(self.agent, "w", encoding="utf-8") as f:
            f.write(AGENT.format(prefix=self.prefix, folder=folder))
        os.chmod(self.agent, 0o755)

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def name(self, host):
        return f"{self.prefix}{host}"

    def address(self, host):
        return f"10.177.0.{host}"

    def make(self):
        switch = self.name("switch")
        run(["ip", "netns", "add", switch])
        run(["ip", "-n", switch, "link", "add", "bridge", "type", "bridge"])
        run(["ip", "-n", switch, "link", "set", "bridge", "up"])
        for host in range(1, self.hosts + 1):
            name = self.name(host)
            run(["ip", "netns", "add", name])
            run(["ip", "-n", switch, "link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0", "netns", name])
            run(["ip", "-n", switch, "link", "set", f"port{host}", "master", "bridge", "up"])
            run(["ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0"])
            for link in ("eth0", "lo"):
                run(["ip", "-n", name, "link", "set", link, "up"])

    def remove(self):
        for name in [self.name("switch"), *map(self.name, range(1, self.hosts + 1))]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def slow(self, rate):
        """Limits what each host sends to `rate`; None: no limit."""
        for host in range(1, self.hosts + 1):
            tc = ["tc", "-n", self.name(host), "qdisc"]
            burst = burst_of(rate) if rate else 2 * MOST_SEGMENT
            segment = min(MOST_SEGMENT, int(burst / 2))
            run(["ip", "-n", self.name(host), "link", "set", "eth0", "gso_max_size", str(segment)])
            if rate:
                run([*tc, "replace", "dev", "eth0", "root", "tbf", "rate", f"{rate}bit", "burst", f"{burst:.0f}b", "limit", QUEUE])
            else:
                subprocess.run([*tc, "delete", "dev", "eth0", "root"], capture_output=True, check=False)

    def mpirun(self, ranks, *line):
        """Starts ranks 0 .. ranks - 1 on hosts 1 .. ranks."""
        hosts = ",".join(map(self.address, range(1, ranks + 1)))
        network = ["--mca", "plm_rsh_agent", self.agent, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0",
                   "--mca", "oob_tcp_if_include", "eth0", "--bind-to", "none"]
        return run([self.agent, self.address(1), "exec", "mpirun", "--allow-run-as-root", *network, "--host", hosts, "-n",
                    str(ranks), *BEHIND, *line])


class Shared:
    """Ranks that are processes without a network between them."""

    def slow(self, rate):
        pass

    def mpirun(self, ranks, *line):
        more = ["--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        return run(["mpirun", *more, *line], env={**os.environ, **AS_ROOT})


# ---- models ----------------------------------------------------------------------------------------


def defines(shape):
    return [x for name, value in dict(system="attnres", **SHAPES[shape]).items() for x in ("-D", f"{name}={value}")]


def library(a, shape, dtype, ranks):
    return os.path.join(a.work, f"{shape}-{dtype}-{ranks}", "m")


def prepare(a):
    for shape in a.shapes:
        weights = os.path.join(a.work, f"{shape}.safetensors")
        for dtype in a.types:
            for ranks in a.ranks:
                out = library(a, shape, dtype, ranks)
                if os.path.exists(os.path.join(os.path.dirname(out), "libm.so")):
                    continue
                if not os.path.exists(weights):
                    run([a.hadal, "init-weights", "--draw-all", SPEC, *defines(shape), "--weights-dtype", "bf16", "-q", "-o", weights])
                divided = ["--ranks", str(ranks)] if ranks > 1 else []
                run([a.hadal, "compile", SPEC, *defines(shape), "-w", weights, "--weights-dtype", dtype, "--target-cpu", "native",
                     *divided, "-q", "-o", out])
        if os.path.exists(weights):
            os.remove(weights)


# ---- measuring and planning ------------------------------------------------------------------------


def threads(ranks):
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def on_ranks(a, network, ranks, *line):
    """The output of a command that runs on all ranks; one rank is started without mpirun."""
    line = [a.hadal, *map(str, line), "--threads", str(threads(ranks))]
    return run(line) if ranks == 1 else network.mpirun(ranks, *line)


def link_of(rate):
    """The facts of a host that RATE or RATE/LATENCY stands for."""
    network, _, latency = rate.partition("/")
    return {"network": network, **({"latency": latency} if latency else {})}


def held_back(rate):
    """The options of a command that delay its messages."""
    link = link_of(rate) if rate else {}
    return ["--link", ",".join(f"{k}={v}" for k, v in link.items())] if "latency" in link else []


def measure(a, network, shape, dtype, ranks, rate):
    text = on_ranks(a, network, ranks, "bench", library(a, shape, dtype, ranks), "--prefill", a.prefill, "--decode", a.decode,
                    "--rounds", a.rounds, "--json", *held_back(rate))
    return {row["phase"]: row for row in json.loads(text)["rows"]}


def facts_of_host(host, rate, row):
    """Facts for --host. They were measured in the same round as the run, since the memory of a machine varies from one minute
    to the next. A slow link adds its time to that of the transport, which was measured without the link."""
    limits, ranks = host["limits"], host.get("ranks", 1)
    faster = row["fma_limit"] / limits["f32 multiply-add"]
    facts = {"memory": host["memory"], "read": row["read_limit"], "flops": row["fma_limit"], "barrier": host["barrier"],
             "cache": host.get("cache"), "cached": host.get("cached"),
             "bf16": limits.get("bf16 dots", 0) * faster, "int8": limits.get("int8 dots", 0) * faster}
    facts.update({f"reached.{name}": share for name, share in host.get("reached", {}).items()})  # shares do not depend on the limits
    if ranks > 1:
        facts.update(latency=host["latency"], network=NO_LIMIT, transport=host["network"] / 8)
        facts.update(link_of(rate) if rate else {})
    return ",".join(f"{name}={value}" for name, value in facts.items() if value)


def compare(a, network, ranks, host, rate):
    for shape in a.shapes:
        for dtype in a.types:
            for phase, row in measure(a, network, shape, dtype, ranks, rate).items():
                yield {"shape": shape, "type": dtype, "ranks": ranks, "threads": threads(ranks), "link": rate, "phase": phase,
                       "prefill": a.prefill, "decode": a.decode, "measured": row["seconds"], "spread": row["spread"],
                       "busy": row["busy"], "facts": facts_of_host(host, rate, row)}


def shape_of(hadal, shape, row, facts):
    """What `hadal plan` prints for the model with these -D, divided as the row says."""
    text = run([hadal, "plan", SPEC, *shape, "--weights-dtype", row["type"], "--ranks", str(row["ranks"]), "--hosts", str(row["ranks"]),
                "--prefill", str(row["prefill"]), "--decode", str(row["decode"]), "--host", facts, "--chunk", "512", "--json"])
    return json.loads(text)["shapes"][0]


def plan_of(hadal, shape, row):
    """{what: seconds} of the phase. A token bucket that holds all bytes that a host sends for a token, and is full again
    before the next token, does not limit decoding."""
    out = shape_of(hadal, shape, row, row["facts"])
    link = row.get("link") or ""
    bucket = burst_of(link) if link and "/" not in link else 0
    if row["phase"] == "decode" and out["leave_a_host_for_a_token"]["decode"] <= bucket:
        out = shape_of(hadal, shape, row, f"{row['facts']},network={NO_LIMIT}")
    return out[f"{row['phase']}_seconds"]


def planned(a, row):
    """The row, with the prediction of the plan added."""
    parts = plan_of(a.hadal, defines(row["shape"]), row)
    return {**row, "planned": parts["all"], "parts": parts}


def show(row):
    parts = ", ".join(f"{name} {1e3 * x:.3g}" for name, x in row["parts"].items() if name not in ("all", "held_by") and x)
    print(f"{row['shape']:6} {row['type']:5} {row['ranks']:5} {row['link'] or '-':>8} {row['phase']:8} {1e3 * row['measured']:11.2f}"
          f" {1e3 * row['planned']:11.2f} {row['planned'] / row['measured']:7.2f}  +-{100 * row['spread']:2.0f} %  {parts}"
          f"{', busy' if row['busy'] else ''}", flush=True)


HEAD = "shape  type  ranks     link phase    measured ms  planned ms   ratio   spread   of the plan, ms\n"


def show_host(ranks, host):
    limits = host["limits"]
    text = f"{ranks} x {threads(ranks)} threads: read {limits['memory read'] * 1e-9:.1f} GB/s, " \
           f"multiply-add {limits['f32 multiply-add'] * 1e-9:.0f} GFLOP/s"
    if "ranks" in host:
        text += f", an exchange {host['latency'] * 1e6:.1f} us, {host['network'] * 1e-9:.2f} Gbit/s"
    if "not_reached" in host:
        text += f"; {len(host['reached'])} shares measured ({host['not_reached']})"
    print(text, flush=True)


def measure_on(a, network, links):
    for ranks in a.ranks:
        links_of_it = links if ranks > 1 else [None] if None in links else []
        if not links_of_it:
            continue
        host = json.loads(on_ranks(a, network, ranks, "machine", "--json"))
        show_host(ranks, host)
        for rate in links_of_it:
            network.slow(rate)
            yield from compare(a, network, ranks, host, rate)
        network.slow(None)


def measure_all(a):
    held = [x for x in a.links if x and "/" in x]
    slowed = [x for x in a.links if x not in held]
    if slowed:
        with Network(max(a.ranks), a.work) as network:
            yield from measure_on(a, network, slowed)
    if held:
        yield from measure_on(a, Shared(), held)


def rows_of(a):
    """The rows measured now or, with --again, earlier."""
    if not a.again:
        prepare(a)
        return [] if a.only_prepare else measure_all(a)
    with open(a.again, encoding="utf-8") as f:
        return json.load(f)["rows"]


def tell(rows):
    off = [abs(row["planned"] / row["measured"] - 1) for row in rows]
    print(f"{sum(x <= 0.25 for x in off)} of {len(off)} within 25 %, half within {100 * statistics.median(off):.0f} %, the furthest "
          f"{100 * max(off):.0f} %")


# ---- arguments -------------------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=os.path.dirname(shutil.which("hadal") or "") or "build/release/bin")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--links", default="1G,10G,none", help="bits per second that leave a host; none: not slowed; 10G/50us: with a latency")
    parser.add_argument("--types", default="f32,q4")
    parser.add_argument("--shapes", default="small,large", help=", ".join(SHAPES))
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", metavar="DIR")
    parser.add_argument("--only-prepare", action="store_true")
    parser.add_argument("--again", metavar="FILE")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    a = parser.parse_args()
    a.hadal = os.path.abspath(os.path.join(a.bin, "hadal"))
    a.ranks = [int(x) for x in a.ranks.split(",")]
    a.links = [None if x == "none" else x for x in a.links.split(",")]
    a.types, a.shapes = a.types.split(","), ["quick"] if a.quick else a.shapes.split(",")
    a.rounds = 1 if a.quick else a.rounds
    unknown = [x for x in a.shapes if x not in SHAPES]
    if unknown:
        fail(f"no shape {unknown[0]}: there are {', '.join(SHAPES)}")
    if not all(1 <= x <= 250 for x in a.ranks):
        fail("--ranks are 1 to 250 each")
    return a


def check_tools(a):
    if not os.path.exists(a.hadal):
        fail(f"{a.hadal} is not there: --bin")
    if a.again or a.only_prepare:
        return
    namespaces = [x for x in a.links if not x or "/" not in x]
    if namespaces and os.geteuid() != 0:
        fail("only root can make network namespaces")
    tools = (("ip", "iproute2"), ("tc", "iproute2")) if namespaces else ()
    for tool, package in (*tools, ("mpirun", "openmpi-bin")):
        if not shutil.which(tool):
            fail(f"there is no {tool}: Debian's package {package} has it")


def main():
    a = arguments()
    check_tools(a)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that namespaces are removed
    with contextlib.ExitStack() as stack:
        a.work = a.work or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(a.work, exist_ok=True)
        a.work = os.path.abspath(a.work)
        rows, head = [], HEAD
        for row in rows_of(a):
            rows.append(planned(a, row))
            print(head, end="", flush=True)
            show(rows[-1])
            head = ""
    if rows:
        tell(rows)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-links-1", "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
