# fill_() on a partial DTensor stores the value times the number of ranks
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
    sums = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]).sum(0)
    sums.fill_(3.0)
    got = sums.full_tensor()
    if rank == 0:
        answers.put((got.tolist(), [3.0, 3.0]))
    dist.destroy_process_group()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, answers), nprocs=2)
    got, want = answers.get()
    if got != want:
        print(f"DEFECT: after fill_(3.0) the tensor reads back as {got}, expected {want}")
        sys.exit(1)
    print("OK")
