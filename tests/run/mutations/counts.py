"""Other numbers of trials, and cells that are called skipped."""

from __future__ import annotations

import itertools
import shutil

from harness.reason import RefusalWord, SkipCode
from tests.kit import forge
from tests.run.mutations.operators import (
    CELLS,
    DIFFERENT,
    SECOND,
    Copy,
    end_of,
    jittered,
    other_pids,
    read,
    refused,
    shifted,
    write,
)

# Beyond the two voids that are replaced, also where a trial was left out.
MORE = 4


def count(copy: Copy, cell: int, *, candidate: int) -> None:
    cells = copy.facts["cells"]
    cells[cell]["candidate"] = candidate
    forge.facts(copy.folder, cells=cells)


@refused(RefusalWord.TRIALS_NOT_PLANNED, removes=True)
def a_trial_left_out(copy: Copy) -> None:
    for path in copy.trials(0, "candidate")[-1:]:
        shutil.rmtree(path.parent)
    count(copy, 0, candidate=len(copy.trials(0, "candidate")))


@refused(RefusalWord.TRIALS_NOT_PLANNED, removes=True)
def more_trials_than_voids_allow(copy: Copy) -> None:
    """So many that no other change of the count makes up for them: with one left out and one void,
    two would fit.
    """
    made = copy.trials(0, "candidate")
    if not made:
        return
    end = end_of(copy.every)
    for index, path in enumerate(itertools.islice(itertools.cycle(made), MORE), start=len(made)):
        more = path.parent.with_name(f"candidate-{index:05d}") / path.name
        more.parent.mkdir()
        first, *rest = jittered(read(path), copy.dice)
        seed = forge.seed(copy.folder, CELLS[0], index)
        first["values"] = {**first["values"], "trial": index, "seed": seed}
        write(more, other_pids(shifted([first, *rest], end + SECOND - first["ns"])))
        end = end_of([more])
    count(copy, 0, candidate=len(made) + MORE)
    forge.facts(copy.folder, seconds=copy.facts["seconds"] + 60)


@refused(RefusalWord.TRIALS_NOT_PLANNED)
def a_trial_called_void(copy: Copy) -> None:
    path = copy.any()
    first, *rest = read(path)
    ranks = [event for event in rest if event["by"] != "rank"]
    error = {
        **rest[-1],
        "name": "harness.error",
        "values": {"type": "OSError", "message": "port taken"},
    }
    write(path, [first, *ranks[:-1], error, ranks[-1]])


@refused(DIFFERENT, removes=True)
def a_gap_in_the_numbers(copy: Copy) -> None:
    for path in copy.trials(1, "candidate")[-1:]:
        path.parent.rename(path.parent.with_name("candidate-00009"))


@refused(DIFFERENT)
def a_trial_beside_those_that_count(copy: Copy) -> None:
    path = copy.any()
    shutil.copytree(path.parent, path.parent.with_name("candidate-00077"))


# --- skipped cells
# ----------------------------------------------------------------------------------------------


def call_skipped(copy: Copy, code: SkipCode, why: str, *, both: bool = False) -> None:
    cells = copy.facts["cells"]
    for index in range(len(cells)) if both else range(1, len(cells)):
        cells[index] = {
            "id": CELLS[index],
            "skipped": {"code": code, "text": why},
            "candidate": 0,
            "control": 0,
        }
        copy.remove(index)
    forge.facts(copy.folder, cells=cells)


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_its_backend(copy: Copy) -> None:
    call_skipped(copy, SkipCode.BACKEND_UNKNOWN, "backend none: not in this version yet")


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_another_backend(copy: Copy) -> None:
    call_skipped(
        copy,
        SkipCode.CELL_GPUS,
        "backend nccl: nccl needs one GPU per rank, so 2 for this world, but this machine has no NVIDIA GPUs",
    )


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_memory(copy: Copy) -> None:
    call_skipped(
        copy, SkipCode.MACHINE_MEMORY, "needs 640.0 GiB of memory, but this machine has 24.0 GiB"
    )


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_no_known_reason(copy: Copy) -> None:
    call_skipped(copy, SkipCode.NETWORK_PACKAGES, "the network was down")


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def all_cells_called_skipped(copy: Copy) -> None:
    call_skipped(copy, SkipCode.BACKEND_UNKNOWN, "backend none: not in this version yet", both=True)
