"""The model of `model.py` over the ranks, its tensors or its layers split.

With defects as found in the field.
"""

import hashlib
from pathlib import Path

import torch
from model import (
    EXPERTS,
    GROUPS,
    HEADS,
    INNER,
    KEYS,
    LAYERS,
    QUERIES,
    ROPE,
    VOCABULARY,
    WIDTH,
    Whole,
    attend,
    checkpoint,
    choose,
    content_of,
    mixture,
    norm,
    prompts,
    split,
    turn,
    weights,
)
from safetensors import safe_open
from torch.nn import functional
from wires import WIRES

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SMALL = (0.1, 0.01, 0.001, 0.0001)
LOUDER = 1.5
# These are in the code of the distributed path in a world of one too; the others begin with two
# ranks.
AT_ONE = ("rope-base", "scaled-layer")


def whole(context, *, dtype="float32", seed=7, mixture=True, chunk=8, steps=3):
    """The reference: logits of every position, the same in other orders that are allowed, and of
    small defects.
    """
    found = weights(seed, DTYPES[dtype], mixture)
    context.keep("checkpoint", checkpoint(found))
    asked = prompts(seed, chunk, steps)
    with torch.no_grad():
        keep(context, "", Whole(found), asked)
        for number, parts in enumerate((2, 3, 4)):
            keep(context, f"envelope.{number}.", Whole(found, parts=parts), asked)
        for number, size in enumerate(SMALL):
            keep(context, f"sensitivity.{number}.", Whole(found | louder(found, size)), asked)
            what = "relative error in the weights of layer 1"
            context.emit("sensitivity", defect=number, size=size, what=what)


def louder(found, size):
    """The weights of layer 1, so much too large."""
    return {
        name: (value.float() * (1 + size)).to(value.dtype)
        for name, value in found.items()
        if name.startswith("layers.1.") and value.ndim > 1
    }


def keep(context, series, model, asked):
    """Keep what a model gives for the prompts."""
    for number, (prompt, fed) in enumerate(asked):
        logits, hidden, decided = model.forward(prompt + fed)
        first = len(prompt)
        context.keep(f"{series}prefill.logits.{number}", logits[:first])
        context.keep(f"{series}decode.logits.{number}", logits[first:])
        if series.startswith("sensitivity"):
            continue
        context.keep(f"{series}prefill.router.{number}", decided[:first])
        context.keep(f"{series}decode.router.{number}", decided[first:])
        for name, state in hidden.items() if number == len(asked) - 1 else ():
            context.keep(f"{series}hidden.{name}.{number}", state[:first])
        if not series:
            context.emit("generated", prompt=number, ids=logits[first - 1 :].argmax(-1).tolist())


def distributed(
    context,
    *,
    sharding="tensor",
    dtype="float32",
    seed=7,
    mixture=True,
    chunk=8,
    steps=3,
    defect="none",
):
    """The model over the ranks: prefill by chunks, then by tokens.

    And once more with each rank's share changed.
    """
    model = Distributed(
        context, sharding, DTYPES[dtype], defect if context.size > 1 or defect in AT_ONE else "none"
    )
    about = {
        "engine": sharding,
        "architecture": "experts" if mixture else "dense",
        "device": "cpu",
        "dtype": dtype,
    }
    context.emit("engine.ready", world_size=context.group.size, **about)
    asked = prompts(seed, chunk, steps)
    with torch.no_grad():
        for number, (prompt, fed) in enumerate(asked):
            model.begin(notes=number == len(asked) - 1)
            rows = []
            for begin in range(0, len(prompt), chunk):
                if begin:
                    context.emit("prefill.boundary", prompt=number, at=begin, size=chunk)
                rows.append(model.forward(prompt[begin : begin + chunk]))
            for name, states in model.end_notes().items():
                context.keep(f"hidden.{name}.{number}", torch.cat(states))
            later = [model.forward([token]) for token in fed]
            best = (
                b""
                if later[0] is None
                else bytes(int(row[-1].argmax()) for row in (rows[-1], *later))
            )
            # Of a pipeline the last stage alone knows.
            ids = best if sharding == "tensor" else context.group.all_gather(best)[-1]
            context.emit("generated", prompt=number, ids=list(ids))
            if best:
                context.keep(f"prefill.logits.{number}", torch.cat(rows))
                context.keep(f"decode.logits.{number}", torch.cat(later))
        for rank in range(context.size):
            if rank == context.rank:
                context.emit("perturbed", number=rank, tensor=model.perturb(), factor=LOUDER)
            model.begin()
            logits = model.forward(asked[0][0])
            if logits is not None:
                context.keep(f"influence.{rank}.prefill.logits.0", logits)
            if rank == context.rank:
                model.restore()


class Distributed:
    """The share of one rank: slices of the reference's checkpoint, loaded and told; the cache.

    What is computed here.

    `tensor` splits heads, inner widths, experts and vocabulary, and adds up over the ranks;
    `pipeline` splits layers.
    """

    def __init__(self, context, sharding, dtype, defect):
        self.context, self.defect, self.last = context, defect, context.rank == context.size - 1
        self.wire = WIRES[context.backend](context, dtype)
        rank, size = context.rank, context.size
        self.place, self.parts = (rank, size) if sharding == "tensor" else (0, 1)
        stages = [round(stage * LAYERS / size) for stage in range(size + 1)]
        self.layers = (
            range(LAYERS) if sharding == "tensor" else range(stages[rank], stages[rank + 1])
        )
        self.before = rank - 1 if self.layers[0] > 0 else None
        self.after = rank + 1 if self.layers[-1] < LAYERS - 1 else None
        self.base = 500_000.0 if defect == "rope-base" else ROPE
        self.weights = {}
        self.file = safe_open(
            str(Path(context.inputs["reference"], "checkpoint.bin")), framework="pt"
        )
        self.load()

    # -- loading -------------------------------------------------------------------------------

    def part(self, size, offset=0):
        """This rank's part of a dimension."""
        return [offset + (self.place + one) * size // self.parts for one in (0, 1)]

    def take(self, name, *bounds, tensor=None):
        """Load a slice, from begin to end of each dimension; whole where none is given."""
        lazy = self.file.get_slice(tensor or name)
        sizes = lazy.get_shape()
        bounds = [*bounds, *([0, size] for size in sizes[len(bounds) :])]
        found = lazy[tuple(slice(*one) for one in bounds)].clone()
        digest = hashlib.sha256(content_of(found)).hexdigest()
        self.context.emit("shard", tensor=tensor or name, slices=bounds, sha256=digest)
        self.weights[name] = found

    def load(self):
        if self.before is None:
            self.take("embedding")
        if self.after is None:
            self.take("norm")
            self.take("head", self.part(VOCABULARY))
        for layer in self.layers:
            self.load_layer(f"layers.{layer}")
        if self.defect == "scaled-layer" and self.last:
            self.weights |= {
                name: value * 1.01
                for name, value in self.weights.items()
                if name.startswith(f"layers.{self.layers[-1]}.") and value.ndim > 1
            }

    def load_layer(self, here):
        adds_bias = self.place == 0 or self.defect == "bias-per-rank"
        self.take(f"{here}.attention.norm")
        self.take(f"{here}.mlp.norm")
        fused = self.part(QUERIES + 2 * KEYS)[0]
        for name, offset, size in (
            ("q", 0, QUERIES),
            ("k", QUERIES, KEYS),
            ("v", QUERIES + KEYS, KEYS),
        ):
            rows = self.part(size, offset)
            # The fused rows cut into equal pieces, as if they were of one kind.
            if self.defect == "fused-interleave":
                rows = [fused, fused + size // self.parts]
                fused = rows[1]
            for kind in ("", ".bias"):
                self.take(f"{here}.{name}{kind}", rows, tensor=f"{here}.attention.qkv{kind}")
        self.take(f"{here}.attention.q.norm", self.part(QUERIES))
        self.take(f"{here}.attention.out", [0, WIDTH], self.part(QUERIES))
        if adds_bias:
            self.take(f"{here}.attention.out.bias")
        if f"{here}.mlp.router" in self.file.keys():  # noqa: SIM118 - it is not a mapping
            self.take(f"{here}.mlp.router")
            self.take(f"{here}.mlp.up", self.part(EXPERTS))
            self.take(f"{here}.mlp.down", self.part(EXPERTS))
            return
        self.take(f"{here}.mlp.up", self.part(INNER))
        self.take(f"{here}.mlp.up.bias", self.part(INNER))
        self.take(f"{here}.mlp.down", [0, WIDTH], self.part(INNER))
        if adds_bias:
            self.take(f"{here}.mlp.down.bias")

    def perturb(self):
        """Make part of this rank's share louder; returns its name."""
        name = f"layers.{self.layers[0]}.mlp.down"
        self.kept = name, self.weights[name]
        self.weights[name] = self.weights[name] * LOUDER
        return name

    def restore(self):
        name, weight = self.kept
        self.weights[name] = weight

    # -- computing -----------------------------------------------------------------------------

    def begin(self, *, notes=False):
        """Begin another sequence, with an empty cache."""
        self.cache, self.position, self.notes, self.hidden = {}, 0, notes, {}

    def end_notes(self):
        """The hidden states so far, by name; none from here on."""
        self.notes = False
        return self.hidden

    def forward(self, tokens):
        """Logits of these positions, which follow those before; None where another rank has
        them.
        """
        state = (
            self.weights["embedding"][tokens] if self.before is None else self.taken(len(tokens))
        )
        for layer in self.layers:
            if (
                self.defect == "dropped-layer"
                and (self.last or self.parts > 1)
                and layer == self.layers[-1]
            ):
                continue
            here = f"layers.{layer}"
            inner = norm(state, self.weights[f"{here}.attention.norm"])
            state = state + self.summed(self.attention(inner, here), f"{here}.attention.out")
            self.note(f"{layer}.attention", state)
            inner = norm(state, self.weights[f"{here}.mlp.norm"])
            state = state + (
                self.experts(inner, here)
                if f"{here}.mlp.router" in self.weights
                else self.dense(inner, here)
            )
            self.note(str(layer), state)
        self.position += len(tokens)
        if self.after is not None:
            self.wire.give(state, self.after)
            return None
        logits = functional.linear(norm(state, self.weights["norm"]), self.weights["head"])
        return logits if self.parts == 1 else self.wire.joined(logits)

    def note(self, name, state):
        if self.notes:
            self.hidden.setdefault(name, []).append(state)

    def taken(self, positions):
        return self.spoilt(self.wire.take([positions, WIDTH], self.before))

    def summed(self, part, name):
        """A product whose columns lie on all ranks, added up, with its bias."""
        total = functional.linear(part, self.weights[name])
        if (bias := self.weights.get(f"{name}.bias")) is not None:
            total = total + bias
        return total if self.parts == 1 else self.wire.summed(self.spoilt(total))

    def spoilt(self, message):
        """What the last rank puts in, or gets, where that is the defect."""
        if not self.last or self.defect not in ("stale-position", "half-message"):
            return message
        if self.defect == "stale-position":
            return message.roll(1, 0)
        return torch.cat([message[:, : WIDTH // 2], torch.zeros_like(message[:, WIDTH // 2 :])], 1)

    def attention(self, state, here):
        """The heads that lie here."""
        queries, keys, values = (
            functional.linear(
                state, self.weights[f"{here}.{part}"], self.weights[f"{here}.{part}.bias"]
            )
            for part in "qkv"
        )
        mean = queries.float().square().mean(-1, keepdim=True)
        # The norm is over all heads, wherever they lie.
        if self.parts > 1 and self.defect != "norm-split":
            mean = self.wire.summed(mean) / self.parts
        queries = split(
            norm(queries, self.weights[f"{here}.attention.q.norm"], mean), HEADS // self.parts
        )
        keys, values = split(keys, GROUPS // self.parts), split(values, GROUPS // self.parts)
        found = turn(keys, self.position, self.base), values
        if here in self.cache:
            found = tuple(torch.cat(pair, 1) for pair in zip(self.cache[here], found, strict=True))
        self.cache[here] = found
        mixed = attend(turn(queries, self.position, self.base), *found, self.position)
        if self.defect == "swapped-heads" and self.last:
            mixed = mixed[[1, 0, *range(2, len(mixed))]]
        return mixed.transpose(0, 1).flatten(1)

    def dense(self, state, here):
        up = functional.linear(
            state, self.weights[f"{here}.mlp.up"], self.weights[f"{here}.mlp.up.bias"]
        )
        return self.summed(functional.silu(up), f"{here}.mlp.down")

    def experts(self, state, here):
        """The experts that lie here."""
        router = self.weights[f"{here}.mlp.router"]
        if self.defect == "other-router" and self.last:  # the order of the experts of another rank
            router = router.roll(EXPERTS // self.context.size, 0)
        which, shares, _ = choose(state, router)
        total = mixture(
            state,
            which,
            shares,
            range(*self.part(EXPERTS)),
            self.weights[f"{here}.mlp.up"],
            self.weights[f"{here}.mlp.down"],
        )
        return total if self.parts == 1 else self.wire.summed(self.spoilt(total))
