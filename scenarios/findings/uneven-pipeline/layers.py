"""Three layers that mlx-lm's PipelineMixin spreads over the ranks of a ring."""

import json

from mlx_lm.models.pipeline import PipelineMixin

LAYERS = 3


def spread(context):
    """Emit by how many ranks each layer is run."""
    model = PipelineMixin()
    model.layers = list(range(LAYERS))
    model.pipeline(context.group.native)
    held = list(model.pipeline_layers)
    everyone = [json.loads(each) for each in context.group.all_gather(json.dumps(held).encode())]
    runs = [sum(layer in each for each in everyone) for layer in range(LAYERS)]
    context.emit("pipeline", held=held, runs=runs)
