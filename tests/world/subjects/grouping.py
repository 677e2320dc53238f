"""Subjects that make groups of their own."""

import os

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
AT_IMPORT = {name: os.environ.get(name) for name in NAMES}


def mlx_alone(context):
    """Ask MLX for the group, without what it needs to find the others."""
    import mlx.core as mx

    group = mx.distributed.init()
    context.emit("made", size=group.size(), loader=type(mx.__spec__.loader).__name__)


def mlx_sum(context):
    """Add up over the ranks, in whatever group MLX takes when none is named."""
    import mlx.core as mx

    context.emit(
        "summed", total=mx.distributed.all_sum(mx.array([context.rank + 1]), stream=mx.cpu).item()
    )


def mlx_given(context):
    """Add up in the group that the harness joined, and in what MLX takes for the whole world."""
    import mlx.core as mx

    one = mx.array([1])
    total = mx.distributed.all_sum(one, group=context.group.native, stream=mx.cpu).item()
    whole = mx.distributed.all_sum(one, stream=mx.cpu).item()
    context.emit("summed", total=total, whole=whole)


def mlx_refused(context):
    """Ask for a group strictly, where there is none."""
    import mlx.core as mx

    mx.distributed.init(strict=True, backend="ring")


def torch_alone(context, leave=True, way="plainly"):
    """Make torch's default group of this rank alone, and leave it before anybody looks."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if dist.is_initialized():
        dist.destroy_process_group()
    if way == "mesh":
        values = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
        os.environ.update(values)
        init_device_mesh("cpu", (1,))
    else:
        init = (
            dist.init_process_group.__wrapped__
            if way == "past the watch"
            else dist.init_process_group
        )
        init("gloo", store=dist.HashStore(), rank=0, world_size=1)
    context.emit("made", size=dist.get_world_size())
    if leave:
        dist.destroy_process_group()


def torch_as_launched(context):
    """Find the others by what a launcher sets, as scripts for torchrun do."""
    import torch.distributed as dist

    context.emit("found", at_import=AT_IMPORT)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    context.emit("made", rank=dist.get_rank(), size=dist.get_world_size())
    dist.barrier()


def torch_together(context):
    """Make the whole group oneself, and cut a part out of it on purpose."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    place = f"file://{context.shared}/meeting"
    dist.init_process_group("gloo", init_method=place, rank=context.rank, world_size=context.size)
    own = dist.new_group([context.rank], use_local_synchronization=True)
    context.emit("made", size=dist.get_world_size(), part=dist.get_world_size(own))
    dist.barrier()
    dist.destroy_process_group()


def torch_in_a_child(context):
    """Let a child make a group; it does not speak for the rank."""
    import torch.distributed as dist

    child = os.fork()
    if child == 0:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        os._exit(0)
    os.waitpid(child, 0)
