"""The traffic of the residual mechanism in the backward half of a step, counted in the text of kernel IR: what docs/ledger.md
defines, by another road than passes/analysis/ and without any part of Hadal.

    count_backward.py DUMP.hir

    b = Backward(Count(text))
    b.kernels, b.read, b.written        as of Count

The road: ends. The gradients of the mechanism are those that come to one of its ends, or are multiplied with its values on the
way: the gradient of a weight that the mechanism reads, of the embedding, or of what a contraction or attention makes for it. What
comes to the ends of sublayers alone is inside them. (passes/analysis/ goes the other way, from where gradients come out of
contractions.)
"""
import sys

from count import BYTES, Count

REDUCES = {"linear_grad", "block_linear_grad", "expert_linear_grad", "sum_tokens", "scatter_rows"}
ALONG = {"attention_grad", "attention_selected_grad", "pool_grad", "short_conv_grad", "ngram_gather_grad", "delta_rule_grad"}
LINEAR = {"linear", "block_linear", "expert_linear"}
VIEWS = {"reshape", "convert"}


class Backward:
    def __init__(self, count):
        self.c = count
        live = count.needed([op for op in count.ops if op.code in ("output", "trace")])
        self.half = {n for n in live if n not in count.forward}
        self.ops = [op for k in count.ops for op in (k.body if k.code.startswith("kernel.") else [k])
                    if op.results and op.results[0] in self.half and (op.code not in VIEWS or op.args[0] not in count.values)]
        self.find_forward()
        self.find_users()
        self.find_copies()
        self.judge()
        self.charge()

    # ---- the forward half ---------------------------------------------------------------------------
    def find_forward(self):
        """Which weights the mechanism reads itself, and for which values contractions of sublayers are."""
        c = self.c
        self.made, self.own_weights = {}, set()
        for op in c.flat:
            made = c.values[op.results[0]] if op.results else None
            if made in c.members and not c.border(op) and c.rows(op) and not (op.code in LINEAR and self.contracts(op)):
                for w in self.weights_in(op):
                    if op.code == "mul" and len(c.weights.get("@" + w, c.weights.get(f'@"{w}"', ()))) == 2:
                        self.made.setdefault(w, made)       # a product of rows in the place of a contraction
                        if self.contracts(op):
                            continue
                    self.own_weights.add(w)
            if op.code in LINEAR:
                self.made.setdefault(self.plain(op.args[1]), made)
                if made in c.members and not self.contracts(op):
                    self.own_weights.add(self.plain(op.args[1]))
            elif made and c.border(op):
                for v in c.rows(op):
                    self.made.setdefault(v, made)
    def contracts(self, op):
        """A contraction of a sublayer: one of few columns is none if rows are multiplied with what it makes."""
        if self.c.border(op) or op.code not in LINEAR | {"mul"}:
            return self.c.border(op)
        reached = [self.c.values[op.results[0]]]
        if op.code == "mul":
            reached = [self.c.values[u.results[0]] for u in reached[0].users]       # the sum over it
            if any(v.row >= self.c.width for v in reached):
                return False
        for v in reached:
            for u in v.users:
                made = self.c.values[u.results[0]] if self.c.local(u) else None
                if made and made.row >= self.c.width:
                    return False
                if made and made not in reached:
                    reached.append(made)
        return True

    def weights_in(self, op):
        """The weights that an op reads, or what is the same for every token and made of them."""
        found, todo = set(), list(op.args)
        while todo:
            a = todo.pop()
            if a.startswith("@"):
                found.add(self.plain(a))
            elif a in self.c.values and self.c.at(a).name in self.c.fixed:
                todo += self.c.at(a).op.args
        return found

    def plain(self, weight):
        """Its name, or that of the weight that it is the transpose of."""
        name = self.c.transposed.get(weight, weight).lstrip("@").strip('"')
        return name[:-len(".folded")] if name.endswith(".folded") else name

    # ---- what is computed again ---------------------------------------------------------------------
    def find_copies(self):
        """Which values of the forward half the other half makes by the same ops of the same values, or by the only contraction with
        a weight."""
        known, number, self.original = {}, {}, {}
        products = {}
        for op in self.c.flat:
            if op.code in LINEAR and op.args[1].startswith("@"):
                products.setdefault((op.code, op.args[1]), []).append(self.c.values[op.results[0]])
        for op, again in [(op, False) for op in self.c.flat] + [(op, True) for op in self.ops]:
            if len(op.results) != 1:
                continue
            v = self.c.values[op.results[0]]
            args = [a if self.c.at(a) is None else (number.get(self.c.at(a), self.c.at(a)).name, *self.c.values[a].dims) for a in op.args]
            key = op.code, *v.dims, *args, *sorted(op.attrs.items())
            if key in known:
                number[v] = known[key]
                if again:
                    self.original[v] = known[key]
            elif not again:
                known[key] = v
            elif op.code in LINEAR and len(products.get((op.code, op.args[1]), ())) == 1:
                number[v] = self.original[v] = products[op.code, op.args[1]][0]

    def stands_for(self, v):
        return self.original.get(v, v)

    def repeats_inside(self, v):
        """A copy of what is made for the mechanism inside a sublayer, such as its output."""
        v = self.original.get(v)
        return v is not None and v in self.c.members and not self.is_plain_member(v)

    # ---- the backward half --------------------------------------------------------------------------
    def is_row(self, v):
        return v is not None and v.dtype != "i32" and (v.tokens or v.dims[:1] and v.dims[0].startswith("C"))

    def operands(self, op):
        found = [self.c.at(a) for a in op.args if a in self.c.values]
        return [v for v in found if self.is_row(v) and v.name not in self.c.fixed]

    def is_inside(self, v):
        """A value of the forward half inside a sublayer."""
        v = self.stands_for(v)
        return v.name in self.c.forward and v not in self.c.members

    def is_plain_member(self, v):
        """Of the mechanism, and not made for it inside a sublayer."""
        v = self.stands_for(v)
        return v.name in self.c.forward and v in self.c.members and v not in self.c.claimed and not self.c.border(v.op)

    def is_border(self, op):
        if op.code in LINEAR:
            made = self.made.get(self.plain(op.args[1])) if op.args[1].startswith("@") else None
            return made is not None and self.contracts(made.op)
        return op.code in ALONG or op.code in REDUCES or op.code == "scatter"

    def find_users(self):
        for op in self.ops:
            known = [a for a in op.args if a in self.c.values]
            if op.code in ("const", "rope_table") or (op.args and self.c.local(op) and all(self.c.at(a).name in self.c.fixed for a in known)):
                self.c.fixed.add(op.results[0])
        self.link()

    def link(self):
        """What each gradient goes into, and the gradients that outputs name."""
        self.users, self.names = {}, {}
        for op in self.ops:
            for v in set(self.operands(op)):
                self.users.setdefault(v, []).append(op)
        for op in self.c.ops:
            if op.code != "output" or not op.attrs.get("name", "").startswith('"grad.'):
                continue
            back = [self.c.at(op.args[0])]      # through what is made of a sum over tokens
            for v in back:
                self.names.setdefault(v, op.attrs["name"].strip('"')[len("grad."):])
                if v.op and v.op.code not in REDUCES | ALONG:
                    back += [x for x in map(self.c.at, v.op.args) if x and not x.tokens and x not in back]

    def ends_in_mechanism(self, op, v):
        """A border that v comes to: is it an end of the mechanism? None: that says nothing."""
        c = self.c
        if op.code in LINEAR:
            return self.made.get(self.plain(op.args[1])) in c.members
        if op.code in ALONG:
            made = self.made.get(self.operands(op)[0])
            return None if made is None else made in c.members
        if op.code == "scatter_rows":
            return True
        return self.is_for_weights(op)

    def is_for_weights(self, op):
        """A sum over tokens for a weight of the mechanism, by the weight's name."""
        if op.code not in REDUCES or op.code == "scatter_rows":
            return False
        name = self.names.get(self.c.values[op.results[0]])
        return name in self.own_weights if name is not None else None

    def judge(self):
        """The gradients of the mechanism, among them entries, which contractions leave."""
        self.mine, self.entries, self.again = set(), set(), set()
        self.weigh_ends()
        self.take()

    def weigh_ends(self):
        """To ends of what each gradient comes."""
        c = self.c
        self.comes_to = {}      # value -> does it come to an end of the mechanism, to one of a sublayer
        for op in reversed(self.ops):
            v = c.values[op.results[0]]
            mine = theirs = False
            for user in self.users.get(v, []):
                made = c.values[user.results[0]]
                if made in self.original:
                    continue
                if self.is_border(user):
                    end = self.ends_in_mechanism(user, v)
                    mine |= end is True
                    theirs |= end is False
                elif any(self.is_inside(x) for x in self.operands(user)):
                    theirs = True
                elif any(self.is_plain_member(x) for x in self.operands(user)):
                    mine = True
                else:
                    mine |= self.comes_to.get(made, (False, False))[0]
                    theirs |= self.comes_to.get(made, (False, False))[1]
            self.comes_to[v] = mine, theirs

    def take(self):
        """From the first op of the half on: what is not inside a sublayer."""
        c, inside = self.c, set()
        for op in self.ops:
            v = c.values[op.results[0]]
            if not self.is_row(v) or op.code in ("const", "rope_table"):
                continue
            rows = self.operands(op)
            gradients = [x for x in rows if x.name in self.half]
            mine, theirs = self.comes_to[v]
            if v in self.original:
                if self.original[v] in c.members:
                    self.mine.add(v)
                    self.again.add(v)
                elif self.original[v].name not in c.fixed:
                    inside.add(v)
                continue
            if self.is_border(op):
                if mine:
                    self.entries.add(v)
                else:
                    inside.add(v)
                continue
            members = [x for x in rows if self.stands_for(x).name in c.forward and self.stands_for(x) in c.members]
            if (any(self.is_inside(x) or x in inside for x in rows) or not (members or any(x in self.mine | self.entries for x in rows)) or
                    (members and not any(self.is_plain_member(x) for x in members) and theirs and not mine)):
                inside.add(v)
            elif op.code == "add" and gradients == rows and all(x in self.entries for x in rows):
                self.entries.add(v)
            else:
                self.mine.add(v)
                if not any(x in self.mine | self.entries and x not in self.again for x in gradients):
                    self.again.add(v)

    # ---- what kernels move --------------------------------------------------------------------------
    def is_of_mechanism(self, v):
        return self.is_row(v) and (v in self.mine or v in self.entries or
                                   (v.name in self.c.forward and v in self.c.members))

    def reads(self, kernel):
        c, taken = self.c, {}
        before = {c.outside(a, kernel) for op in kernel.body if op.code != "yield" and op.results and op.results[0] in c.forward
                  for a in op.args}
        for op in kernel.body:
            made = c.values[op.results[0]] if op.results else None
            if made is None or made.name not in self.half or op.code in VIEWS:
                continue
            if self.repeats_inside(made) or made not in self.mine and not self.is_for_weights_of(op):
                continue
            for a in op.args:
                v = c.outside(a, kernel)
                if v is None or v in before or not self.is_of_mechanism(c.at(a)) or v.dtype == "i32":
                    continue
                taken[v.name] = taken.get(v.name, 0) | c.bits(v, op)
        return sum(bin(bits).count("1") * BYTES[c.values[name].dtype] for name, bits in taken.items())

    def is_for_weights_of(self, op):
        """And of rows of the mechanism."""
        return bool(self.is_for_weights(op)) and all(self.is_of_mechanism(v) for v in self.operands(op))

    def own(self, kernel):
        """Entries, and for each entry that goes on in the kernel that makes it, and is not stored, the first row that is made
        of it and as wide."""
        c = self.c
        stored = [c.at(r) for r in kernel.results]
        own = {v for v in stored if v in self.entries or self.repeats_inside(v)}
        here = {c.values[op.results[0]] for op in kernel.body if op.results}
        passing = {x for op in kernel.body if op.results and c.values[op.results[0]] in self.mine
                   for x in self.operands(op) if x in self.entries and x in here and x not in stored}
        reached = set(passing)
        for op in kernel.body:
            v = c.values[op.results[0]] if op.results else None
            if v in self.mine and any(x in reached and x.row == v.row for x in self.operands(op)):
                reached.add(v)
        rows = [v for v in stored if v in reached and v in self.mine and not self.only_for_weights(v)]
        return own | set(rows[:len(passing)])

    def only_for_weights(self, v):
        users = self.users.get(v, [])
        return bool(users) and all(self.is_for_weights_of(op) for op in users)

    def charge(self):
        c = self.c
        self.kernels, self.read, self.written = {}, 0, 0
        for kernel in c.ops:
            if not kernel.code.startswith("kernel."):
                continue
            own, read = self.own(kernel), self.reads(kernel)
            written = sum(c.values[r].row * BYTES[c.values[r].dtype] for r in kernel.results
                          if c.at(r) in self.mine and c.at(r) not in own)
            if read or written:
                self.kernels[kernel.line] = [read, written]
            self.read += read
            self.written += written


if __name__ == "__main__":
    b = Backward(Count(open(sys.argv[1]).read()))
    for line, (read, written) in sorted(b.kernels.items()):
        print(line, read, written)
    print("read", b.read, "written", b.written)
