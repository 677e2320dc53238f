"""Subjects whose collective calls come from elsewhere than the libraries' own functions: DTensor,
compilers, mlx-lm.
"""

from pathlib import Path


def dtensor(context, *, odd=-1):
    """Tensors that are spread over a mesh, and change how; `odd` is a rank that leaves the last
    change out.
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (context.size,))
    whole = torch.arange(float(6 * 4 * context.size)).reshape(6 * context.size, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole)
    rows.redistribute(mesh, [Shard(1)]).to_local()
    columns = distribute_tensor(whole.t().contiguous(), mesh, [Shard(1)])
    product = torch.matmul(columns, rows)  # each rank has a part of every element
    if context.rank != odd:
        assert torch.equal(product.full_tensor(), whole.t() @ whole)
    context.emit("spread")


def compiled(context, *, backend, odd=-1):
    """Functional collectives in a function that torch.compile takes, called three times; `odd`
    takes another branch.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional

    def step(tensor, add):
        if add:
            return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1
        return functional.all_reduce(tensor * 2, "max", dist.group.WORLD) + 1

    fast = torch.compile(step, backend=backend, fullgraph=True)
    for number in range(3):
        got = fast(torch.ones(5), number < 2 or context.rank != odd)
        assert (
            context.rank == odd
            or odd >= 0
            or torch.equal(got, torch.full((5,), 2.0 * context.size + 1))
        )
    context.group.barrier()
    context.emit("compiled")


def shares(context, *, cut=0):
    """mlx-lm's own way to give a model's files to other machines.

    With `cut` rank 1 misses the end of the file.
    """
    import os

    import mlx.core as mx
    from mlx_lm import share

    share.CHUNK_SIZE = 1000
    folder = Path(f"copy-{context.rank}")
    folder.mkdir()
    if context.rank == 0:
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_bytes(os.urandom(2500))
        (folder / "empty").write_bytes(b"")
    path, files = share.get_files(folder) if context.rank == 0 else (folder, [])
    there = mx.distributed.all_gather(len(files) > 0)
    share.share_files(path, files, there.argmax().item())
    context.group.barrier()
    context.emit("shared", bytes=(folder / "deep" / "weights").stat().st_size)


def transformed(context, *, how):
    """A collective in what MLX traces: as it compiles a function, maps it over rows, or works out
    its gradient.
    """
    import mlx.core as mx

    def step(x):
        return mx.distributed.all_sum(x * 2, group=context.group.native).sum()

    made = {"compile": mx.compile, "vmap": mx.vmap, "grad": mx.grad}[how](step)
    for _ in range(3):
        mx.eval(made(mx.ones((2, 3))))
    context.emit("transformed")
