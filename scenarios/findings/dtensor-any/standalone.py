# The result of any() on a sharded DTensor counts ranks when converted to a number
# Affected: torch 2.13.0. No fixed version known.
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def rank_main(rank, folder, answers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    plain = torch.ones(4) > 0
    split = distribute_tensor(plain, mesh, [Shard(0)])
    got = split.any().float().full_tensor()
    if rank == 0:
        answers.put((got.item(), plain.any().float().item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, answers), nprocs=2)
    got, want = answers.get()
    if got != want:
        print(f"DEFECT: any().float() returned {got}, expected {want}")
        sys.exit(1)
    print("OK")
