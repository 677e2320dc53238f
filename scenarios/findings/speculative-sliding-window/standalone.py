# Speculative decoding in mlx-lm changes the output of a sliding-window model
import sys

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.generate import generate_step, speculative_generate_step
    from mlx_lm.models.gemma3_text import Model, ModelArgs
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

mx.set_default_device(mx.cpu)
shape = {"model_type": "gemma3_text", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48}
shape |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
shape |= {"sliding_window": 8, "sliding_window_pattern": 2}


def make(seed):
    mx.random.seed(seed)
    made = Model(ModelArgs(**shape))
    made.update(tree_map(lambda v: 0.3 * mx.random.normal(v.shape), made.parameters()))
    return made


model, draft = make(0), make(1)
prompt = mx.array(list(range(20, 41)))  # longer than the window
want = [int(token) for token, _ in generate_step(prompt, model, max_tokens=12)]
steps = speculative_generate_step(prompt, model, draft, num_draft_tokens=3, max_tokens=12)
got = [int(token) for token, *_ in steps]
if got != want:
    print(f"DEFECT: generated {got} with a draft model, expected {want}")
    sys.exit(1)
print("OK")
