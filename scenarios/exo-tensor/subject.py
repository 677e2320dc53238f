"""exo's own `tensor_auto_parallel`, as it stands in a commit, splits a model of mlx-lm over the
ranks of a ring.

The code under test is the folder src of exo's repository, laid out beside this file; nothing in it
is changed. The package `inference` is Rankproof's (subject.beside): it asks the model, keeps its
logits and tells what each rank holds.
"""

import inspect
import os

from inference import session
from inference.engine import Request, takes_a_request
from inference.mlx import MlxLm
from mlx.utils import tree_flatten

WRAPPED = "_original_layer"  # where exo's layers keep the one that they stand for


class Exo(MlxLm):
    """A decoder of mlx-lm that exo splits."""

    def share(self, folder, whole):
        """What exo does with a model once it is loaded (exo/worker/engines/mlx/utils_mlx.py)."""
        # Asked for as exo is imported.
        os.environ["EXO_RESOURCES_DIR"] = os.environ["EXO_DASHBOARD_DIR"] = folder
        from exo.worker.engines.mlx.auto_parallel import tensor_auto_parallel

        # A time-out and what to call came to it one by one, from commit to commit.
        further = {"timeout_seconds": 60.0, "on_timeout": None, "on_layer_loaded": None}
        taken = inspect.signature(tensor_auto_parallel).parameters
        return tensor_auto_parallel(
            whole, self._group, **{name: value for name, value in further.items() if name in taken}
        )

    def parameters(self, module):
        """Those of wrapped layers too, which MLX leaves out: their name begins with an
        underscore.
        """
        own = module.valid_parameter_filter
        return tree_flatten(
            module.filter_and_map(lambda one, key, value: key == WRAPPED or own(one, key, value))
        )

    def known_as(self, name):
        """The name in the checkpoint."""
        return name.replace(f".{WRAPPED}", "")


@takes_a_request
def split(context, **asked):
    """A rank: its share of the model, as exo splits it."""
    engine = Exo(
        rank=context.rank, size=context.size, sharding="tensor", group=context.group.native
    )
    session.run(context, engine, Request(**asked))


@takes_a_request
def whole(context, **asked):
    """The reference: the whole model, which mlx-lm runs and exo has no hand in."""
    session.run(context, MlxLm(rank=0, size=1, sharding="single"), Request(**asked))
