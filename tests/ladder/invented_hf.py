"""Defects beside the ready ones, put into a decoder of transformers that is loaded: what a rank of
the soak runs.
"""

import torch
from inference import hf, stages
from torch.nn import functional


class Share:
    """What one rank holds."""

    def __init__(self, engine):
        self.engine, self.model, self.stage = engine, engine.model, engine._stage
        self.rank, self.size = engine.rank, engine.size
        self.is_last = self.rank == self.size - 1
        self.layers = list(stages.layers_of(self.model))

    def rotary(self):
        return next(
            (one for name, one in self.model.named_modules() if name.endswith("rotary_emb")), None
        )

    def named(self, *ends):
        """Modules of this rank whose names end so."""
        return [one for name, one in self.model.named_modules() if name.endswith(ends)]


def put(name):
    """Have every model that is loaded from here on spoilt; returns what takes that back.

    The model, or the way in which it is split, may have nothing that the defect is about: an error
    of the rank.
    """
    load = hf.Transformers.load

    def spoilt(engine, *given, **named):
        load(engine, *given, **named)
        with torch.no_grad():
            if not INVENTED[name](Share(engine)):
                raise ValueError(f"nothing to put {name} into")

    hf.Transformers.load = spoilt

    def back():
        hf.Transformers.load = load

    return back


def _local(tensor):
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()


def _rope_twice(share):
    """Rotated by twice the angle."""
    if share.rotary() is None:
        return False
    if share.is_last:
        share.rotary().register_forward_hook(
            lambda _module, _given, out: (out[0] ** 2 - out[1] ** 2, 2 * out[0] * out[1])
        )
    return True


def _places(change):
    """Other positions for the rotation, by those that are there `[1, tokens]`."""

    def act(share):
        rotary = share.rotary()
        if rotary is None:
            return False

        def other(_module, given, named):
            if "position_ids" in named:
                return given, {**named, "position_ids": change(named["position_ids"])}
            return (given[0], change(given[1]), *given[2:]), named

        rotary.register_forward_pre_hook(other, with_kwargs=True)
        return True

    return act


def _mask_at_border(share):
    """The first token of each further chunk does not see the last one of the chunk before."""
    if not share.is_last:
        return True
    for layer in share.layers:

        def masked(_module, given, named):
            state = given[0] if given else named["hidden_states"]
            seen, many = share.engine._seen, state.shape[1]
            if not seen or many == 1:
                return None
            mask = torch.full(
                (many, seen + many), torch.finfo(state.dtype).min, dtype=state.dtype
            ).triu(seen + 1)
            mask[0, seen - 1] = torch.finfo(state.dtype).min
            return given, {**named, "attention_mask": mask[None, None]}

        layer.register_forward_pre_hook(masked, with_kwargs=True)
    return True


def _other_group(share):
    """Queries meet the KV head of the group beside theirs."""
    for layer in share.layers if share.is_last else ():
        attention = layer.self_attn
        for one in (attention.k_proj, attention.v_proj):
            for kind in ("weight", "bias"):
                if (found := getattr(one, kind)) is not None:
                    _local(found).copy_(_local(found).roll(attention.head_dim, 0))
    return True


def _summed_twice(share):
    """The sum of the first attention is summed once more."""
    if share.stage is not None:
        return False
    out = share.layers[0].self_attn.o_proj
    bias = _local(out.bias) if out.bias is not None else None

    def forward(given):
        total = functional.linear(given, _local(out.weight))
        torch.distributed.all_reduce(total)
        torch.distributed.all_reduce(total)
        return total if bias is None else total + bias

    out.forward = forward
    return True


def _gathered_in_another_order(share):
    """The last rank joins the parts of the logits beginning with its own."""
    if share.stage is not None:
        return False
    if share.is_last:
        parts, forward = share.size, share.model.forward

        def joined(*given, **named):
            out = forward(*given, **named)
            out.logits = out.logits.roll(out.logits.shape[-1] // parts, -1)
            return out

        share.model.forward = joined
    return True


def _rounded_message(share):
    """What goes into the first sum, or comes from the stage before, has 16 bits on the way."""
    if next(share.model.parameters()).dtype != torch.float32:
        return False
    if not share.is_last:
        return True
    if share.stage is not None:
        share.stage.altered = lambda message: message.bfloat16().float()
        return True
    for layer in share.layers[:1]:
        layer.self_attn.o_proj.register_forward_pre_hook(
            lambda _module, given: (given[0].bfloat16().float(),)
        )
    return True


def _stale_slot(share):
    """After the second chunk the slot of its first key still holds the one before."""
    if share.is_last:
        step = share.engine.step

        def stepped(ids):
            before = share.engine._seen
            found = step(ids)
            if before == 8 and len(ids) == 8:
                keys = share.engine._cache.layers[0].keys
                keys[..., 8, :] = keys[..., 7, :].clone()
            return found

        share.engine.step = stepped
    return True


def _norm_skipped(share):
    """The last norm is skipped where one token is asked."""
    found = [one for one in share.named("model.norm", "ln_f") if list(one.parameters())]
    for one in found if share.is_last else ():
        one.register_forward_hook(
            lambda _module, given, out: given[0] if given[0].shape[1] == 1 else out
        )
    return bool(found) or not share.is_last


def _other_gelu(share):
    found = [
        layer.mlp
        for layer in share.layers
        if hasattr(layer.mlp, "act_fn") or hasattr(layer.mlp, "act")
    ]
    names = {type(getattr(one, "act_fn", None) or one.act).__name__ for one in found}
    if not names & {"GELUTanh", "NewGELUActivation", "PytorchGELUTanh"}:
        return False
    for one in found if share.is_last else ():
        setattr(one, "act_fn" if hasattr(one, "act_fn") else "act", torch.nn.GELU())
    return True


def _embedding_unscaled(share):
    embedding = share.model.get_input_embeddings()
    whose = share.is_last if share.stage is None else share.rank == 0
    if whose and not hasattr(embedding, "embed_scale"):
        return False
    if whose:
        embedding.embed_scale.fill_(1.0)
    return True


def _other_epsilon(share):
    found = [
        one
        for one in share.model.modules()
        if hasattr(one, "variance_epsilon") or "Norm" in type(one).__name__
    ]
    for one in found if share.is_last else ():
        name = next(name for name in ("variance_epsilon", "eps") if hasattr(one, name))
        setattr(one, name, 1e-5 if getattr(one, name) < 5e-6 else 1e-4)
    return bool(found)


def _unweighted(share):
    """The weights of the chosen experts do not add up to 1."""
    found = [
        layer.mlp.gate
        for layer in share.layers
        if getattr(getattr(layer.mlp, "gate", 0), "norm_topk_prob", 0)
    ]
    for one in found if share.is_last else ():
        one.norm_topk_prob = False
    return bool(found)


def _window_short(share):
    """The sliding window is a token shorter."""
    found = [
        layer.self_attn
        for layer in share.layers
        if getattr(layer.self_attn, "sliding_window", None)
    ]
    for layer in share.layers if share.is_last else ():
        if not getattr(layer.self_attn, "sliding_window", None):
            continue

        def shorter(_module, given, named, window=layer.self_attn.sliding_window):
            state = given[0] if given else named["hidden_states"]
            seen, many = share.engine._seen, state.shape[1]
            if seen + many < window:
                return None
            # What the cache of a sliding layer holds of the keys.
            kept = min(seen, window - 1) + many
            rows = torch.arange(seen, seen + many)[:, None]
            keys = torch.arange(seen + many - kept, seen + many)[None]
            far = (keys > rows) | (keys <= rows - (window - 1))
            mask = torch.zeros(many, kept, dtype=state.dtype).masked_fill(
                far, torch.finfo(state.dtype).min
            )
            return given, {**named, "attention_mask": mask[None, None]}

        layer.register_forward_pre_hook(shorter, with_kwargs=True)
    return bool(found)


def _no_bias(share):
    """The bias of the values is missing."""
    found = [layer.self_attn.v_proj for layer in share.layers if hasattr(layer, "self_attn")]
    found = [one for one in found if one.bias is not None]
    for one in found if share.is_last else ():
        _local(one.bias).zero_()
    return bool(found)


def _halves_of_vocabulary(share):
    """Rows of the head exchanged within what a rank holds: its vocabulary in another order."""
    head = share.model.get_output_embeddings()
    if share.is_last:
        weight = _local(head.weight)
        weight.copy_(weight.roll(weight.shape[0] // 2, 0))
    return True


def _indexers(share):
    """What chooses which keys a position attends to: with a norm of its keys, and a number that is
    chosen.
    """
    return [
        one for name, one in share.model.named_modules() if name.rpartition(".")[2] == "indexer"
    ]


def _indexer_short(share):
    """One key, or block of keys, less is chosen."""
    names = ("index_topk", "topk_blocks", "block_topk")
    for one in _indexers(share) if share.is_last else ():
        name = next(name for name in names if hasattr(one, name))
        setattr(one, name, getattr(one, name) - getattr(one, "index_kpool", 1))
    return bool(_indexers(share))


def _indexer_keys_late(share):
    """What an indexer keeps of a token lies one place further on."""
    for one in _indexers(share) if share.is_last else ():
        keys = next(
            norm
            for name in ("k_norm", "kv_norm", "k_layernorm")
            if (norm := getattr(one, name, None))
        )
        keys.register_forward_hook(lambda _module, _given, out: out.roll(1, min(1, out.ndim - 2)))
    return bool(_indexers(share))


def _indexer_weights(share):
    """An indexer weighs its heads as those beside them."""
    found = [one for one in share.named("weights_proj") if hasattr(one, "weight")]
    for one in found if share.is_last else ():
        _local(one.weight).copy_(_local(one.weight).roll(1, 0))
    return bool(found)


def _later(ids):
    return ids + 1 if ids.shape[-1] == 1 else ids


INVENTED = {
    "rope-twice": _rope_twice,
    "restarted-positions": _places(lambda ids: ids - ids[..., :1]),
    "late-single-position": _places(_later),
    "mask-at-border": _mask_at_border,
    "other-group": _other_group,
    "summed-twice": _summed_twice,
    "gathered-in-another-order": _gathered_in_another_order,
    "rounded-message": _rounded_message,
    "stale-slot": _stale_slot,
    "norm-skipped": _norm_skipped,
    "other-gelu": _other_gelu,
    "embedding-unscaled": _embedding_unscaled,
    "other-epsilon": _other_epsilon,
    "unweighted-experts": _unweighted,
    "window-short": _window_short,
    "no-bias": _no_bias,
    "vocabulary-order": _halves_of_vocabulary,
    "indexer-short": _indexer_short,
    "indexer-keys-late": _indexer_keys_late,
    "indexer-weights": _indexer_weights,
}
