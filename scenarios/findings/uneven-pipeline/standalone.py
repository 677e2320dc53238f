"""The pipeline of mlx-lm leaves out layers that the ranks do not divide."""

import sys

try:
    from mlx_lm.models.pipeline import PipelineMixin
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)


class Group:
    """Stands for rank RANK of two: pipeline() asks for no more."""

    def __init__(self, rank):
        self.rank, self.size = lambda: rank, lambda: 2


held = []
for rank in range(2):
    model = PipelineMixin()
    model.layers = ["first", "second", "third"]
    model.pipeline(Group(rank))
    held += model.pipeline_layers
if sorted(held) != ["first", "second", "third"]:
    print(f"DEFECT: two ranks run the layers {sorted(held)}, should be each of three once")
    sys.exit(1)
print("right")
