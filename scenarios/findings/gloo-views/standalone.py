# gloo collectives read and write outside a non-contiguous view
# Affected: torch 2.13.0. No fixed version known.
import os
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def rank_main(rank, folder, answers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    table = torch.arange(12.0).reshape(3, 4)
    view = table[:, :2]  # two columns: shape 3 by 2, strides 4 and 1
    want = view * 2
    dist.all_reduce(view)
    if rank == 0:
        answers.put((view.tolist(), want.tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, answers), nprocs=2)
    got, want = answers.get()
    if got != want:
        print(f"DEFECT: after all_reduce the view is {got}, expected {want}")
        sys.exit(1)
    print("OK")
