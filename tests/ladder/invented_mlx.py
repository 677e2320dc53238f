"""Defects beside the ready ones, put into a decoder of mlx-lm that is loaded: what a rank of the
soak runs.
"""

import mlx.core as mx
from inference import mlx
from inference.modules_mlx import around


class Share:
    """What one rank holds."""

    def __init__(self, engine):
        self.engine, self.model, self.sharding = engine, engine.model, engine._sharding
        self.rank, self.size = engine.rank, engine.size
        # mlx-lm's pipeline ends at rank 0.
        self.is_last = self.rank == (0 if self.sharding == "pipeline" else self.size - 1)
        self.layers = list(self.model.layers)


def put(name):
    """Have every model that is loaded from here on spoilt; returns what takes that back."""
    load = mlx.MlxLm.load

    def spoilt(engine, *given, **named):
        load(engine, *given, **named)
        if not INVENTED[name](Share(engine)):
            raise ValueError(f"nothing to put {name} into")
        mx.eval(engine.model.parameters())

    mlx.MlxLm.load = spoilt

    def back():
        mlx.MlxLm.load = load

    return back


def _rotated(change, *, last_alone):
    def act(share):
        for layer in share.layers if share.is_last or not last_alone else ():
            around(layer.self_attn.rope, change)
        return True

    return act


def _twice(call, state, offset=0):
    return call(call(state, offset=offset), offset=offset)


def _later(call, state, offset=0):
    return call(state, offset=offset + (state.shape[-2] == 1))


def _mask_at_border(share):
    """The first token of each further chunk does not see the last one of the chunk before."""

    def masked(call, state, mask=None, cache=None):
        seen, many = cache.offset if cache is not None else 0, state.shape[1]
        if seen and many > 1:
            rows, keys = mx.arange(seen, seen + many)[:, None], mx.arange(seen + many)[None]
            mask = (keys <= rows) & ~((rows == seen) & (keys == seen - 1))
        return call(state, mask, cache)

    for layer in share.layers if share.is_last else ():
        around(layer.self_attn, masked)
    return True


def _other_group(share):
    """Queries meet the KV head of the group beside theirs."""
    for layer in share.layers if share.is_last else ():
        attention = layer.self_attn
        heads = getattr(attention, "n_kv_heads", None) or attention.num_key_value_heads
        for one in (attention.k_proj, attention.v_proj):
            for kind in ("weight", "bias"):
                if kind in one:
                    one[kind] = mx.roll(one[kind], one[kind].shape[0] // heads, 0)
    return True


def _summed_twice(share):
    """The sum of the first attention is summed once more."""
    if share.sharding == "pipeline":
        return False
    out = share.layers[0].self_attn.o_proj
    bias = out.get("bias")

    def summed(_call, given):
        total = mx.distributed.all_sum(given @ out["weight"].T, group=out.group)
        total = mx.distributed.all_sum(total, group=out.group)
        return total if bias is None else total + bias

    around(out, summed)
    return True


def _rounded_message(share):
    """What goes into the first sum, or comes from the stage before, has 16 bits on the way."""
    first = share.layers[0]
    if first.self_attn.o_proj.weight.dtype != mx.float32:
        return False

    def rounded(call, state, *rest, **named):
        return call(state.astype(mx.bfloat16).astype(mx.float32), *rest, **named)

    if share.is_last:
        around(first if share.sharding == "pipeline" else first.self_attn.o_proj, rounded)
    return True


def _stale_slot(share):
    """After the second chunk the slot of its first key still holds the one before."""
    if share.is_last:
        step = share.engine.step

        def stepped(ids):
            before = share.engine._cache[0].offset
            found = step(ids)
            if before == 8 and len(ids) == 8:
                cache = share.engine._cache[0]
                cache.keys[..., 8, :] = cache.keys[..., 7, :]
                mx.eval(cache.keys)
            return found

        share.engine.step = stepped
    return True


def _norm_skipped(share):
    """The last norm is skipped where one token is asked."""
    norm = share.model.model.norm
    if share.is_last:
        around(norm, lambda call, state: state if state.shape[1] == 1 else call(state))
    return True


def _other_epsilon(share):
    found = [one for one in share.model.modules() if hasattr(one, "eps")]
    for one in found if share.is_last else ():
        one.eps = 1e-5 if one.eps < 5e-6 else 1e-4
    return bool(found)


def _unweighted(share):
    """The weights of the chosen experts do not add up to 1."""
    found = [layer.mlp for layer in share.layers if getattr(layer.mlp, "norm_topk_prob", False)]
    for one in found if share.is_last else ():
        one.norm_topk_prob = False
    return bool(found)


def _no_bias(share):
    """The bias of the values is missing."""
    found = [layer.self_attn.v_proj for layer in share.layers if "bias" in layer.self_attn.v_proj]
    for one in found if share.is_last else ():
        one.bias = mx.zeros_like(one.bias)
    return bool(found)


def _halves_of_vocabulary(share):
    """The vocabulary in another order: of a tied head too, which has no rows of its own."""
    if share.is_last:
        around(share.model, _rolled)
    return True


def _rolled(call, *given, **named):
    logits = call(*given, **named)
    return mx.roll(logits, logits.shape[-1] // 2, -1)


INVENTED = {
    "rope-twice": _rotated(_twice, last_alone=True),
    "restarted-positions": _rotated(
        lambda call, state, **_offset: call(state, offset=0), last_alone=False
    ),
    "late-single-position": _rotated(_later, last_alone=False),
    "mask-at-border": _mask_at_border,
    "other-group": _other_group,
    "summed-twice": _summed_twice,
    "rounded-message": _rounded_message,
    "stale-slot": _stale_slot,
    "norm-skipped": _norm_skipped,
    "other-epsilon": _other_epsilon,
    "unweighted-experts": _unweighted,
    "no-bias": _no_bias,
    "vocabulary-order": _halves_of_vocabulary,
}
