"""mlx-lm pipelines skip layers when layers do not divide evenly among the ranks."""

import sys

try:
    from mlx_lm.models.pipeline import PipelineMixin
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)


class Group:
    """Stand-in for the group of two ranks: pipeline() needs nothing else."""

    def __init__(self, rank):
        self.rank, self.size = lambda: rank, lambda: 2


held = []
for rank in range(2):
    model = PipelineMixin()
    model.layers = ["first", "second", "third"]
    model.pipeline(Group(rank))
    held += model.pipeline_layers
if sorted(held) != ["first", "second", "third"]:
    print(f"DEFECT: two ranks run the layers {sorted(held)}, expected all three")
    sys.exit(1)
print("OK")
