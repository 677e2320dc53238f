# Batching with a longer prompt changes the tokens that Mamba in mlx-lm generates
import sys

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models.mamba import Model, ModelArgs
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

mx.set_default_device(mx.cpu)
mx.random.seed(0)
shape = {"model_type": "mamba", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48}
shape |= {"state_size": 4, "num_hidden_layers": 2, "conv_kernel": 4, "time_step_rank": 2}
model = Model(ModelArgs(**shape, use_bias=False, use_conv_bias=True))
drawn = tree_map(lambda v: 0.3 * mx.random.normal(v.shape) if v.ndim > 1 else v, model.parameters())
model.update(drawn)
short, long = [3, 1, 4, 1, 5], list(range(20, 41))


def answer(prompts):
    """Return six tokens generated for the first prompt when all prompts form one batch."""
    generator = BatchGenerator(model, prefill_step_size=8)
    first, *_ = generator.insert(prompts, [6] * len(prompts))
    found = []
    while len(found) < 6:
        found += [one.token for one in generator.next_generated() if one.uid == first]
    generator.close()
    return found


want, got = answer([short]), answer([short, long])
if got != want:
    print(f"DEFECT: generated {got} when batched with a longer prompt, expected {want}")
    sys.exit(1)
print("OK")
