# Mean losses on an unevenly sharded DTensor give every rank the same weight
# Affected: torch 2.13.0. No fixed version known.
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    from torch.nn.functional import mse_loss
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def rank_main(rank, folder, answers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    plain = torch.tensor([[0.0], [0.0], [3.0]])  # two rows on rank 0, one on rank 1
    split = distribute_tensor(plain, mesh, [Shard(0)])
    got = mse_loss(split, torch.zeros_like(split)).full_tensor()
    if rank == 0:
        answers.put((got.item(), mse_loss(plain, torch.zeros(3, 1)).item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, answers), nprocs=2)
    got, want = answers.get()
    if got != want:
        print(f"DEFECT: mse_loss returned {got}, expected {want}")
        sys.exit(1)
    print("OK")
