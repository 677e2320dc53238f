# mlx-lm masks the wrong heads when it batches prompts for Gemma 2
import sys

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.models.cache import BatchKVCache
    from mlx_lm.models.gemma2 import Model, ModelArgs
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

mx.set_default_device(mx.cpu)
mx.random.seed(0)
shape = {
    "model_type": "gemma2",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "head_dim": 8,
}
shape |= {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}
model = Model(ModelArgs(**shape, query_pre_attn_scalar=8))
model.update(tree_map(lambda v: 0.3 * mx.random.normal(v.shape), model.parameters()))
prompts = [[3, 1, 4, 1, 5], list(range(20, 29))]  # one prompt for each key head
padding = [max(map(len, prompts)) - len(prompt) for prompt in prompts]
batch = mx.array([[0] * pads + prompt for pads, prompt in zip(padding, prompts, strict=True)])
together = model(batch, cache=[BatchKVCache(padding) for _ in model.layers])[:, -1]
alone = mx.concatenate([model(mx.array([prompt]))[:, -1] for prompt in prompts])
off = ((together - alone).abs().max() / alone.abs().max()).item()
if off > 1e-3:
    print(f"DEFECT: batching changes the logits by up to {off:.0%} of the largest logit")
    sys.exit(1)
print("OK")
