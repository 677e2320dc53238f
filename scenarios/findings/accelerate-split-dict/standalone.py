# split_between_processes overwrites the caller's dictionary
# Affected: accelerate 1.13.0, 1.15.0. No fixed version known.
import os
import sys

try:
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from accelerate import PartialState
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def rank_main(rank, port, answers):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "1"
    prompts = {"text": ["a", "b", "c", "d"]}
    for _ in range(2):  # two passes over the same prompts
        with PartialState(cpu=True).split_between_processes(prompts) as mine:
            last = list(mine["text"])
    answers.put(last)
    dist.barrier()


if __name__ == "__main__":
    answers = mp.get_context("spawn").SimpleQueue()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(rank_main, (store.port, answers), nprocs=2)
    got = sorted(answers.get() + answers.get())
    if got != ["a", "b", "c", "d"]:
        print(f"DEFECT: the second pass over a, b, c, d processed {got}, expected all four")
        sys.exit(1)
    print("OK")
