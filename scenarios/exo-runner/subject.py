"""exo's own `runner.main`, as it stands in a commit, driven through the tasks that its worker would
send it.

The code under test is the folder src/exo of exo's repository, laid out beside this file; nothing in
it is changed. Every rank is one node of an instance of exo's CPU ring, and holds the layers that
exo's placement would give it.
"""

import importlib.util
import os
import sys
from pathlib import Path

PROMPT = "Prompt for every rank: repeat this."
TOKENS = 8


def serve(context):
    """Connect, load, warm up, answer a prompt and shut down.

    Tell every status of the runner and every token.
    """
    # Exo reads it as it is imported.
    os.environ["EXO_MODELS_DIR"] = str(Path(context.inputs["model"]).parent)
    name_the_package(Path(__file__).parent)
    import loguru
    from exo.utils.channels import mp_channel
    from exo.worker.runner.runner import main

    crashes = []
    loguru.logger.add(lambda line: crashes.append(line.record["exception"]), level="WARNING")
    mine, tasks = bound_instance(context), mp_channel()
    for task in tasks_of(mine):
        tasks[0].send(task)
    outbox = Outbox(context)
    main(mine, outbox, tasks[1])
    # main says that it failed, and returns: what it caught is raised here, where it can be seen
    # which line it was.
    for crash in crashes:
        if crash is not None:
            raise crash.value
    context.emit("answered", tokens=outbox.tokens, text="".join(outbox.texts))


def name_the_package(folder):
    """Import this folder as the package exo: it is src/exo, without src/exo_pyo3_bindings, a
    compiled library.
    """
    where = [str(folder)]
    spec = importlib.util.spec_from_file_location(
        "exo", folder / "__init__.py", submodule_search_locations=where
    )
    sys.modules["exo"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["exo"])


def bound_instance(context):
    """This rank's view of an instance whose pipeline has one node for each rank."""
    from exo.shared.types.common import Host, NodeId
    from exo.shared.types.memory import Memory
    from exo.shared.types.models import ModelId, ModelMetadata
    from exo.shared.types.worker.instances import BoundInstance, CpuRingInstance, InstanceId
    from exo.shared.types.worker.runners import RunnerId, ShardAssignments
    from exo.shared.types.worker.shards import PipelineShardMetadata
    from transformers import AutoConfig

    folder = Path(context.inputs["model"])
    config = AutoConfig.from_pretrained(folder)
    layers = config.num_hidden_layers
    model = ModelMetadata(
        model_id=ModelId(folder.name),
        pretty_name=folder.name,
        storage_size=Memory.from_bytes(sum(file.stat().st_size for file in folder.iterdir())),
        n_layers=layers,
        hidden_size=config.hidden_size,
        supports_tensor=False,
    )
    bounds = [layers * rank // context.size for rank in range(context.size + 1)]
    shards = {
        RunnerId(f"runner-{rank}"): PipelineShardMetadata(
            model_meta=model,
            device_rank=rank,
            world_size=context.size,
            start_layer=bounds[rank],
            end_layer=bounds[rank + 1],
            n_layers=layers,
        )
        for rank in range(context.size)
    }
    nodes = [NodeId(f"node-{rank}") for rank in range(context.size)]
    instance = CpuRingInstance(
        instance_id=InstanceId("instance"),
        shard_assignments=ShardAssignments(
            model_id=model.model_id,
            runner_to_shard=shards,
            node_to_runner=dict(zip(nodes, shards, strict=True)),
        ),
        hosts_by_node={node: [Host(ip="127.0.0.1", port=1) for _ in nodes] for node in nodes},
        ephemeral_port=1,
    )
    context.emit("shard", layers=[bounds[context.rank], bounds[context.rank + 1]], of=layers)
    runner = RunnerId(f"runner-{context.rank}")
    return BoundInstance(
        instance=instance, bound_runner_id=runner, bound_node_id=nodes[context.rank]
    )


def tasks_of(mine):
    """What exo's worker sends to a runner, in its order (exo/worker/plan.py)."""
    from exo.shared.types.api import ChatCompletionMessage
    from exo.shared.types.common import CommandId
    from exo.shared.types.tasks import (
        ChatCompletion,
        ChatCompletionTaskParams,
        ConnectToGroup,
        LoadModel,
        Shutdown,
        StartWarmup,
    )

    of = {"instance_id": mine.instance.instance_id}
    if len(mine.instance.shard_assignments.runner_to_shard) > 1:
        yield ConnectToGroup(**of)
    yield LoadModel(**of)
    yield StartWarmup(**of)
    asked = [ChatCompletionMessage(role="user", content=PROMPT)]
    params = ChatCompletionTaskParams(
        model=mine.bound_shard.model_meta.model_id, messages=asked, max_tokens=TOKENS
    )
    yield ChatCompletion(command_id=CommandId("command"), task_params=params, **of)
    yield Shutdown(runner_id=mine.bound_runner_id, **of)


class Outbox:
    """Stands where exo's worker listens: it takes what a runner sends, and tells it at once."""

    def __init__(self, context):
        self.context, self.tokens, self.texts = context, [], []

    def send(self, event):
        """Tell a status of the runner; keep what it generated."""
        kind = type(event).__name__
        if kind == "RunnerStatusUpdated":
            status = type(event.runner_status).__name__.removeprefix("Runner").lower()
            self.context.emit(f"runner.{status}")
        elif kind == "ChunkGenerated":
            self.tokens.append(event.chunk.token_id)
            self.texts.append(event.chunk.text)

    def close(self):
        """As exo's sender has it."""

    join = close
