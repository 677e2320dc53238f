# conv1d of channel-sharded DTensors returns different values on each rank
# Affected: torch 2.13.0. No fixed version known.
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    from torch.nn.functional import conv1d
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def rank_main(rank, folder, answers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    image, weight = torch.arange(1.0, 5.0).reshape(1, 4, 1), torch.ones(1, 4, 1)
    split = [distribute_tensor(whole, mesh, [Shard(1)]) for whole in (image, weight)]
    got = [None, None]
    dist.all_gather_object(got, conv1d(*split).full_tensor().item())
    if rank == 0:
        answers.put((got, [conv1d(image, weight).item()] * 2))
    dist.destroy_process_group()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, answers), nprocs=2)
    got, want = answers.get()
    if got != want:
        print(f"DEFECT: conv1d returned {got} on the two ranks, expected {want}")
        sys.exit(1)
    print("OK")
