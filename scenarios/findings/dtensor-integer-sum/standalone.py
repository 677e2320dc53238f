# Adding an integer DTensor to a partial sum returns a rounded float32 result
# Affected: torch 2.13.0. No fixed version known.
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def rank_main(rank, folder, answers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    plain, other = torch.full((4, 1), 5000001), torch.tensor([16777217])
    split = distribute_tensor(plain, mesh, [Shard(0)])
    same = distribute_tensor(other, mesh, [Replicate()])
    got = (split.sum(0) + same).full_tensor()
    if rank == 0:
        answers.put((str(got), str(plain.sum(0) + other)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, answers), nprocs=2)
    got, want = answers.get()
    if got != want:
        print(f"DEFECT: got sum {got}, expected {want}")
        sys.exit(1)
    print("OK")
