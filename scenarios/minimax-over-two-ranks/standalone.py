"""mlx-lm normalizes queries and keys per shard in a sharded MiniMax."""

import subprocess
import sys

try:
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.models.minimax import Model, ModelArgs
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

SHAPE = {"model_type": "minimax", "hidden_size": 32, "intermediate_size": 32, "head_dim": 8}
SHAPE |= {"num_key_value_heads": 4, "max_position_embeddings": 64, "num_experts_per_tok": 1}
SHAPE |= {"num_local_experts": 2, "shared_intermediate_size": 0, "num_hidden_layers": 1}
SHAPE |= {"num_attention_heads": 4, "vocab_size": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e4}
SHAPE |= {"rotary_dim": 4, "use_qk_norm": True}

if "rank" in sys.argv:  # each of two processes runs this
    group = mx.distributed.init(strict=True, backend="ring")
    mx.random.seed(0)  # the same weights in both
    model, prompt = Model(ModelArgs(**SHAPE)), mx.array([[3, 1, 4, 1, 5, 9]])
    model.update(tree_map(lambda value: mx.random.normal(value.shape), model.parameters()))
    whole = model(prompt)
    mx.eval(whole)
    model.shard(group)
    print("off by", ((model(prompt) - whole).abs().max() / whole.abs().max()).item())
    sys.exit(0)

launch = "from mlx._distributed_utils.launch import main; main()"
command = [sys.executable, "-c", launch, "-n", "2", "--", sys.executable, __file__, "rank"]
done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=170)
off = [float(line.split()[-1]) for line in done.stdout.splitlines() if "off by" in line]
if len(off) != 2:
    print("CANNOT TELL:", done.stderr[-300:])
    sys.exit(2)
if max(off) > 1e-3:
    print(f"DEFECT: sharded logits differ by up to {max(off):.0%} of the largest logit")
    sys.exit(1)
