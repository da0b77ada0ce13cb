"""The traffic of the residual mechanism, counted in the text of kernel IR: what docs/ledger.md defines, computed by another road
than passes/analysis/, from the text alone and without any part of Hadal.

    count.py DUMP.hir

    c = Count(text)
    c.kernels       {line of the kernel: [bytes read, bytes written]} per token
    c.read, c.written, c.width, c.outputs

Of a module with gradients that is the forward half, which the loss needs; count_backward.py counts the other.

The road: a graph in which a value leads to what ops make of it, and to what it is combined with, but not back to what it is made
of. What the embedding reaches in it, up to contractions, attention and states, is the mechanism; what is reached only as the
partner of a member is a sublayer's output. A kernel is charged for each of these values that it takes from memory and that
an op of the mechanism reads, and for each that it leaves in memory, but for the one write of every sublayer's output.
"""
import re
import sys

BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4}
CONTRACTIONS = {"linear", "block_linear", "expert_linear"}
BORDERS = {"pick", "attention", "attention_selected", "attention.latent", "attention.expanded", "select", "pool", "short_conv",
           "ngram_gather", "delta_rule", "cache_append"}
SMALL = 8                       # a linear op of so few outputs, fewer than channels, makes coefficients, and is no sublayer
ELSEWHERE = {"output", "yield", "trace", "topk", "to_ids", "mark"}     # results are no rows of floats
NAME = r'%[\w.]+|@"[^"]*"|@[\w.*/:-]+|\$"[^"]*"|\$[\w.*/:-]+|(?<![\w.])_(?![\w.])'


class Value:
    def __init__(self, name, dtype, dims, op):
        self.name, self.dtype, self.op = name, dtype, op
        self.tokens = "T" in dims
        self.row = 1
        for n in dims:
            self.row *= int(n) if n.isdigit() else 1       # not T, C or C/4
        self.dims = dims
        self.users = []


class Op:
    def __init__(self, code, line, kernel):
        self.code, self.line, self.kernel = code, line, kernel
        self.args, self.results, self.attrs, self.body = [], [], {}, []
        self.rows = None    # Count.rows


def types_of(text):
    return [(t, [d.strip() for d in dims.split(",")] if dims else []) for t, dims in re.findall(r"\b(f32|bf16|f16|i32|f64)\[([^\]]*)\]", text)]


class Count:
    def __init__(self, text):
        self.values, self.weights, self.transposed, self.ops, self.origin = {}, {}, {}, [], {}
        self.parse(text)
        self.find()
        self.charge()

    # ---- the text -----------------------------------------------------------------------------------
    def parse(self, text):
        kernel = None
        for number, line in enumerate(text.split("\n"), 1):
            line = re.sub(r' loc "[^"]*":[\d:]*', "", line)
            weight = re.match(r"\s*weight (@\"[^\"]*\"|\S+) : \w+\[([^\]]*)\]", line)
            if weight:
                self.weights[weight.group(1)] = [int(n) for n in weight.group(2).split(",") if n.strip()]
                of = re.search(r" = transposed\((@\"[^\"]*\"|@[^\[]*)\[", line)
                if of:
                    self.transposed[weight.group(1)] = of.group(1)
                continue
            m = re.match(r"\s*(?:((?:%\w+, )*%\w+) = )?([a-z_]+(?:\.[a-z_]+)?)\b(.*)$", line)
            if line.strip() == "}":
                kernel = None
            if not m or m.group(2) in ("hir", "option", "weight", "state", "arena", "fixed", "func", "derive"):
                continue
            results, code, rest = m.groups()
            op = Op(code, number, kernel)
            attrs = re.search(r"\{(.*)\}", rest)
            if attrs:
                op.attrs = dict(re.findall(r"(\w+) = (\[[^\]]*\]|\"[^\"]*\"|[^,}]+)", attrs.group(1)))
            operands = re.split(r" \{| : ", rest)[0]
            op.args = re.findall(NAME, operands)
            if results:
                names = results.split(", ")
                types = types_of(rest[rest.rfind("} : ") if attrs else rest.find(" : "):])
                for name, (dtype, dims) in zip(names, types):
                    op.results.append(name)
                    self.values[name] = Value(name, dtype, dims, op)
            if code.startswith("kernel."):
                kernel = op
                self.ops.append(op)
                continue
            (kernel.body if kernel else self.ops).append(op)
        outputs = [op for op in self.ops if op.code == "output"]
        losses = [op for op in outputs if op.attrs.get("name") == '"loss"']
        self.forward = self.needed(losses) if losses and losses[0] is outputs[0] else set(self.values)

    def needed(self, outputs):
        """Names of the values that outputs depend on."""
        known, todo, yielded = set(), [a for op in outputs for a in op.args], {}
        for op in self.ops:
            for mine, its in zip(op.results, op.body[-1].args if op.body else []):
                yielded[mine] = its
        while todo:
            name = todo.pop()
            if name in known or name not in self.values:
                continue
            known.add(name)
            todo += [yielded[name]] if name in yielded else self.values[name].op.args
        return known

    def at(self, name):
        """The value behind views."""
        while name in self.origin:
            name = self.origin[name]
        return self.values.get(name)

    # ---- the mechanism ------------------------------------------------------------------------------
    def rows(self, op):
        """Operands that are rows of floats and depend on more than the position."""
        if op.rows is None:
            found = [self.at(a) for a in op.args if a in self.values]
            op.rows = [v for v in found if v and v.tokens and v.dtype != "i32" and v.name not in self.fixed]
        return op.rows

    def border(self, op):
        if op.code == "linear":
            shape = self.weights.get(op.args[1])
            return shape is not None and (shape[0] > SMALL or 0 < self.width <= shape[0])
        return op.code in BORDERS or op.code in CONTRACTIONS

    def local(self, op):
        return bool(op.results) and op.code not in ELSEWHERE and not self.border(op) and op.code != "gather"

    def find(self):
        flat = []
        for op in self.ops:
            flat += op.body if op.code.startswith("kernel.") else [op]
            if op.code.startswith("kernel."):
                for mine, its in zip(op.results, op.body[-1].args):
                    self.origin[mine] = its
        self.flat, self.fixed, self.width = [], set(), 0
        for op in flat:
            if op.code in ("reshape", "convert") and op.args[0] in self.values:
                self.origin[op.results[0]] = op.args[0]
                continue
            if op.code == "yield" or any(r not in self.forward for r in op.results) or op.code == "output" and op.args[0] not in self.forward:
                continue
            self.flat.append(op)
            known = [a for a in op.args if a in self.values]
            if op.code in ("const", "rope_table") or (op.args and self.local(op) and all(self.at(a).name in self.fixed for a in known)):
                self.fixed.add(op.results[0])
        for op in self.flat:
            for v in set(self.rows(op)):
                v.users.append(op)
        self.find_stream([self.values[op.results[0]] for op in self.flat
                          if op.code == "gather" and self.values[op.results[0]].dtype != "i32"])

    def find_stream(self, tables):
        """Where the stream begins: at the embedding; at what a few contractions and others make of it; at a row that is wider. Or
        nowhere, where sublayers read only what others have left: then the first such value is one of the sources."""
        made = [self.values[op.results[0]] for op in self.flat if self.border(op) and op.results]
        made = [v for v in made if v.tokens and v.dtype != "i32"]
        self.begin_at(tables, tables)
        joints = self.joints(tables)
        unclear = len(tables) > 1 or not self.outputs or min(v.row for v in self.outputs) > self.width
        if (unclear or any(self.has_two_ways(cone) for cone in joints.values())) and self.begin_joined(tables, joints):
            return
        self.begin_at(tables, tables)
        if self.outputs and min(v.row for v in self.outputs) > self.width:
            wide = min(v.row for v in self.outputs)
            self.begin_at([next(v for v in self.values.values() if v in self.members and v.row == wide)], tables=tables)
            self.begin_later(tables)
        elif not self.outputs:
            width = self.width
            for v in made[:5]:
                self.begin_at([v], tables=tables)
                if self.outputs and self.readers(v) > 1 and all(o.row <= v.row for o in self.outputs):
                    self.begin_later(tables)
                    return
            for v in made:
                if v.row >= width and len(v.users) > 1:
                    self.begin_at(tables + [v], tables)
                    if self.readers(v) > 1:
                        return
            self.begin_at(tables, tables)
        else:
            self.begin_later(tables)

    def behind(self, values):
        """Them and all that they are made of."""
        found, known = list(values), set(values)
        for w in found:
            for x in self.rows(w.op):
                if x not in known:
                    known.add(x)
                    found.append(x)
        return found

    def goes_elsewhere(self, w, part):
        """Is it read for anything that is no part?"""
        return any(u.code not in ("trace", "mark") and (not u.results or self.at(u.results[0]) not in part) for u in w.users)

    def carries(self, op, x):
        """Is x in the result as it is, but for terms and factors? A factor of which no weight is part is that of a norm."""
        if op.code in ("mul", "div"):
            others = [w for w in self.rows(op) if w is not x and w.row < self.values[op.results[0]].row]
            of_norms = any(not any(a in self.weights for v in self.behind([w]) if v.op.code != "gather" for a in v.op.args) for w in others)
            return not of_norms and (op.code == "mul" or self.at(op.args[0]) is x)
        alone = len(op.args) == 1 and self.values[op.args[0]].dims == self.values[op.results[0]].dims    # a function of each element
        return op.code not in ("rmsnorm", "layernorm") and (not alone or op.code == "neg")

    def cone(self, v):
        """v and all that it is made of, up to embeddings, with how it leads to v; nothing if some of that is read for anything else. None
        if some of it leads to v both through a contraction and as it is, or along the sequence and around that: that is a sublayer."""
        ways, sublayer = {v: {"as it is"}}, False
        todo = [v]
        while todo:
            w = todo.pop()
            if w.op.code == "gather":
                continue
            for x in self.rows(w.op):
                if x.op is None:
                    return {}
                found = set(ways[w]) if self.carries(w.op, x) else {"changed" if way == "as it is" else way for way in ways[w]}
                found = {"through" if w.op.code in CONTRACTIONS and "along" not in found else "along"} if self.border(w.op) else found
                if not found <= ways.setdefault(x, set()):
                    ways[x] |= found
                    around = {"as it is", "changed"} if "along" in ways[x] else {"as it is"} if "through" in ways[x] else set()
                    sublayer |= bool(ways[x] & around)
                    todo.append(x)
        if sublayer:
            return None
        return {} if any(self.goes_elsewhere(w, ways) for w in ways if w is not v) else ways

    def joints(self, tables):
        """Rows that the first embedding is part of with all that is made of it, and with no sublayer in between, each with its cone.
        Where such rows follow each other that are made of the one before both through a contraction and around it, these are sublayers."""
        found = {}
        for op in self.flat if tables else []:
            v = self.values[op.results[0]] if op.results else None
            ways = {} if v is None or not v.tokens or v.dtype == "i32" or op.code == "gather" else self.cone(v)
            if ways is None:
                break
            if tables[0] not in ways:
                continue
            again = [w for w in found if ways.get(w, set()) >= {"through", "changed"} and self.has_two_ways(found[w])]
            if again:
                return {w: found[w] for w in list(found)[:list(found).index(again[0])]}
            found[v] = ways
        return found

    def has_two_ways(self, cone):
        return any(way >= {"through", "changed"} for way in cone.values())

    def begin_joined(self, tables, joints):
        """At the last of the joints."""
        for v in reversed(list(joints)[-4:]):
            self.begin_at([v], tables=tables)
            if self.outputs and self.readers(v) > 1 and all(o.row == v.row for o in self.outputs):
                return True
        return False

    def begin_later(self, tables):
        """Nothing of what the stream is made of is part of it: the norm of an embedding, and no sublayer in between. If such a
        value has all of that for itself, the stream begins there."""
        first = self.begins
        before = set(self.behind(first))
        for op in reversed(self.flat):
            v = self.values[op.results[0]] if op.results else None
            if v not in self.members or v in before or v.row != self.width or not self.local(op):
                continue
            made, known = [v], {v}
            for w in made:
                for x in self.rows(w.op) if w in before or self.local(w.op) else []:
                    if x not in known:
                        known.add(x)
                        made.append(x)
            alone = all(w in before or w in tables or self.local(w.op) for w in made)
            if alone and first[0] in known and not any(self.goes_elsewhere(w, known) for w in made[1:]):
                if self.unscaled(v, ("mul", "div", "neg", "add", "sub")) not in first:      # else it is the embedding, but for factors
                    self.begin_at([v], tables=tables)
                return

    def begin_at(self, seeds, embeddings=None, tables=()):
        """`tables`: embeddings, which are beginnings, too, but for those that the first is made of."""
        seeds = list(seeds) + [t for t in tables if t not in self.behind(seeds)]
        self.begins = seeds
        self.embeddings = set(seeds if embeddings is None else embeddings)
        self.width = seeds[0].row if seeds else 0
        self.reach(seeds)

    def readers(self, v):
        """How many different rows that are made of v contractions and others read."""
        return len({x for x in self.rows_of(v) if any(self.border(u) or u.code == "output" for u in x.users)})

    def unscaled(self, v, codes=("mul", "div", "neg")):
        """Without factors that are the same for every token."""
        while v.op and v.op.code in codes and len(self.rows(v.op)) == 1 and self.rows(v.op)[0].row == v.row:
            v = self.rows(v.op)[0]
        return v

    def reach(self, seeds):
        self.members, self.tails = set(seeds), {}
        self.claimed = []
        todo = list(seeds)
        while todo:
            while todo:
                for op in todo.pop().users:
                    if not self.local(op):
                        continue
                    made = self.values[op.results[0]]
                    if made not in self.members:
                        self.members.add(made)
                        todo.append(made)
                    for other in self.rows(op):
                        other = other if other in self.members else self.unscaled(other)
                        if other not in self.members:
                            self.members.add(other)
                            todo.append(other)
            self.claimed = [v for v in self.members if v not in self.embeddings and
                            not (self.local(v.op) and any(x in self.members for x in self.rows(v.op)))]
            self.tails = {}     # value -> outputs whose last steps it is of
            for output in self.claimed:
                for x in self.steps(output)[1:]:
                    self.tails.setdefault(x, set()).add(output)
            for v, outputs in self.tails.items():
                if len(outputs) > 1:    # several depend on it: the sublayer ends there
                    self.members.add(v)
                    todo.append(v)
                    break
        self.outputs = {v for v in self.claimed if self.is_output(v)}

    def made_of(self, v, least):
        """v and what is made of it, of at least so many elements, other than as a coefficient."""
        reached, known = [v], {v}
        for w in reached:
            for u in w.users:
                made = self.values[u.results[0]] if self.local(u) else None
                if made and made.row >= least and made not in known and not self.dot(u):
                    known.add(made)
                    reached.append(made)
        return reached

    def rows_of(self, v):
        return self.made_of(v, self.width)

    def dot(self, op):
        """A sum over products of two rows: a score."""
        if op.code != "reduce_sum":
            return False
        product, dims = self.at(op.args[0]).op, self.values[op.args[0]].dims
        if product.code != "mul" or int(op.attrs["axis"]) != len(dims) - 1:
            return False
        return all(a in self.values and self.values[a].tokens and self.values[a].dims[-1] != "1" for a in product.args)

    def steps(self, v):
        """v and what it is made of, back to contractions."""
        back = [v]
        for w in back:
            back += [x for x in (self.rows(w.op) if self.local(w.op) else []) if x not in self.members and x not in back]
        return back

    def spread(self, op, v):
        """A factor that is the same for all channels of what is multiplied."""
        if op.code not in ("mul", "div"):
            return False
        made = self.values[op.results[0]].dims
        axes = [len(made) - i for i, n in enumerate(made) if n == str(self.width)]     # from the end
        if not axes:
            return False
        mine = [self.values[a].dims for a in op.args if a in self.values and self.at(a) is v]
        return all(len(dims) < axes[-1] or dims[-axes[-1]] == "1" for dims in mine)

    def is_read_as_row(self, v):
        """Does it come to a contraction or the program's output other than as a coefficient?"""
        reached = [v]
        for w in reached:
            for u in w.users:
                if self.border(u) or u.code == "output":
                    return True
                made = self.values[u.results[0]] if self.local(u) else None
                if made and made not in reached and not self.spread(u, w):
                    reached.append(made)
        return False

    def is_output(self, v):
        """Does it lead to a sum, or to what a sublayer or the head reads, as a row of the stream?"""
        if v.row < self.width or not self.is_read_as_row(v):
            return False
        ends = [w.op for w in self.steps(v) if self.border(w.op)]
        if all(op.code == "linear" and all(x in self.members and x.row < self.width for x in self.rows(op)) for op in ends):
            return False    # a map of low rank
        gate = self.rows(v.op)[0].op if v.op.code in ("add", "sub") and len(self.rows(v.op)) == 1 else v.op     # 1 - g as well
        if gate and gate.code in ("sigmoid", "tanh", "softmax") and all(u.code in ("mul", "sub") for u in v.users):
            return False
        return (any(self.border(u) or u.code in ("add", "sub") and len(self.rows(u)) == 2 for w in self.rows_of(v) for u in w.users) or
                any(u.code == "output" for w in self.made_of(v, 1) for u in w.users))

    # ---- what kernels move --------------------------------------------------------------------------
    def own(self, kernel):
        """Values that are sublayers' own writes: an output that a contraction, attention or a state makes here, or the first sum
        that it is added to here."""
        own, stored = set(), {self.at(r) for r in kernel.results}
        rows = kernel.code == "kernel.row"
        if not rows:
            own |= {v for v in stored if v in self.tails and self.tails[v] & self.outputs}
        for op in kernel.body:
            v = self.values[op.results[0]] if op.results else None
            begins = v in self.embeddings
            if not begins and (rows or v not in self.outputs):
                continue
            reached = [v]
            for w in reached:   # the nearest that is stored
                if w in stored and w not in own:
                    own.add(w)
                    break
                made = [self.values[u.results[0]] for u in w.users if u.kernel is kernel and self.local(u)]
                reached += [m for m in made if m.row == v.row and m not in reached and (not begins or self.unscaled(m, ("mul", "div", "neg", "add", "sub")) is v)]
        return own

    def bits(self, v, op):
        """Which elements of a row the op reads, as bits."""
        if op.code != "slice":
            return (1 << v.row) - 1
        dims = [int(n) for n in self.source_dims(op) if n.isdigit()]
        axis, start, length = (int(op.attrs[k]) for k in ("axis", "start", "length"))
        axis -= 1
        inner = 1
        for n in dims[axis + 1:]:
            inner *= n
        outer = v.row // (dims[axis] * inner)
        part = ((1 << length * inner) - 1) << start * inner
        return sum(part << i * dims[axis] * inner for i in range(outer))

    def source_dims(self, op):
        return self.values[op.args[0]].dims

    def outside(self, name, kernel):
        """The kernel result that an operand is, through views."""
        while True:
            v = self.values.get(name)
            if v is None:
                return None
            if v.op is None or v.op.kernel is not kernel:
                return v
            if v.op.code != "reshape" or v.op.args[0] not in self.values:
                return None
            name = v.op.args[0]

    def reads(self, kernel):
        parts, taken = [], {}
        first = next((i for i, op in enumerate(kernel.body) if op.code == "linear"), 0)
        for i, op in enumerate(kernel.body):
            if op.code == "linear" and i and kernel.body[i - 1].code != "linear":
                parts.append(taken)     # the prologue reads for itself
                taken = {}
            if op.code == "reshape":
                continue
            own_tail = kernel.code == "kernel.row" or i < first
            if op.code == "yield":
                used = [a for a, r in zip(op.args, kernel.results) if self.at(r) in self.members]
            elif self.local(op) or op.code == "convert":
                made = self.at(op.results[0])
                counts = made in self.members and made not in self.claimed
                counts |= own_tail and (made in self.tails or made in self.claimed)
                used = op.args if counts else []
            else:
                used = []
            for name in used:
                v = self.outside(name, kernel)
                if v and v.tokens and v.dtype != "i32" and (self.at(name) in self.members or (own_tail and self.at(name) in self.tails)):
                    taken[v.name] = taken.get(v.name, 0) | self.bits(v, op)
        parts.append(taken)
        return sum(bin(bits).count("1") * BYTES[self.values[name].dtype] for part in parts for name, bits in part.items())

    def charge(self):
        self.kernels, self.read, self.written = {}, 0, 0
        for kernel in self.ops:
            if not kernel.code.startswith("kernel."):
                continue
            own = self.own(kernel)
            written = 0
            for r in kernel.results:
                v = self.at(r)
                if v not in self.members and v not in self.tails or not self.values[r].tokens or self.values[r].dtype == "i32":
                    continue
                if v in own:
                    own.discard(v)
                    continue
                written += self.values[r].row * BYTES[self.values[r].dtype]
            read = self.reads(kernel)
            if read or written:
                self.kernels[kernel.line] = [read, written]
            self.read += read
            self.written += written


if __name__ == "__main__":
    c = Count(open(sys.argv[1]).read())
    for line, (read, written) in sorted(c.kernels.items()):
        print(line, read, written)
    print("width", c.width, "outputs", len(c.outputs), "read", c.read, "written", c.written)
