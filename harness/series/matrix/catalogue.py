"""Which case each kind of fault has: what it is tried on, which checks see it, on which ranks, and
by what name.

A kind without a case is found by a test, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.series.matrix.case import (
    CODED,
    CODED_ON_HOSTS,
    EMPLOY,
    EXCHANGE,
    FETCH,
    FETCH_AGAIN,
    HOSTS,
    LINEAR,
    REDUCE,
    RUNTIME,
    STORE,
    SURVIVE,
    SURVIVE_ALONE,
    Case,
    Ground,
    Sees,
)
from harness.series.matrix.linear import DATA, STEPS, VOCABULARY, WIDTH

# A byte of a weight that lies on rank 1, the one that holds its sign: what the others change may be
# less than noise.
LAST_HALF = DATA + 4 * VOCABULARY * (WIDTH * 3 // 4) + 3
# The sums of the prompt and of each step; then one with each rank's half made louder.
PASSES = 1 + STEPS
RING = "mlx-ring"
GLOO = "gloo"
# The rank that ended, by its own end; and that its peers do not go on without it.
ENDED: Sees = {"struck-finishes": [1], "all-finished": "every", "work-done": "every"}
# A wrong sum is wrong everywhere, and whose part is, is named; where no part explains it, nobody's
# is.
DAMAGED: Sees = {"correct": "every", "intact": [1]}
NOT_TORCH = "ranks of this backend may run without torch"
IN_GATHER = {"hang": {"function": "gather"}, "ranks": "every", "within": "20s"}
# A flipped byte reaches every rank but the one that sent it.
FLIPPED = {"as-expected": [0, 2]}


def _storage(kind: str, message: str, **options: object) -> Case:
    # What peers raise is known to the backend, and not a cause: only the struck rank's own end has
    # to be named.
    sees: Sees = {"struck-finishes": [1]}
    # The one with a class of its own.
    error = "PermissionError" if kind == "permission-denied" else "OSError"
    must_fail = {"error": error, "ranks": [1], "message": message}
    return Case(kind=kind, ground=STORE, options=options, sees=sees, must_fail=must_fail)


# The rank at fault, with its call.
SAID = {"in-step": ", rank 1 ", "correct": "contribution of rank 1 "}


def _call(
    kind: str, *, sees: Sees | None = None, must_fail: Mapping[str, Any] | None = None, **more: Any
) -> Case:
    """Return a fault of the second sum that rank 1 makes."""
    calls = {"gloo": "all_reduce", "mlx-ring": "all_sum"}
    options = {backend: {"operation": calls[backend], "nth": 2} for backend in calls}
    return Case(
        kind=kind,
        variant=more.get("variant", ""),
        ground=more.get("ground", REDUCE),
        sees=sees or {"as-expected": "every"},
        says={name: text for name, text in SAID.items() if sees and name in sees},
        must_fail=must_fail or {},
        by_backend={
            backend: {"options": options[backend], **more.get(backend.replace("-", "_"), {})}
            for backend in calls
        },
        backends=more.get("backends", (GLOO, RING)),
        why_not=more.get("why_not", ""),
    )


def _taken(defect: str, sees: Sees, *, says: str, ground: Ground = SURVIVE) -> Case:
    """Return the death of a peer, taken badly by rank 0."""
    return Case(
        kind="kill",
        variant=defect,
        ground=ground,
        defect={"defect": defect},
        sees=sees,
        says=dict.fromkeys(sees, says),
    )


def _split(kind: str, *, nth: int, sees: Sees) -> Case:
    """Return a fault of a sum of the logits, of which rank 1 has a part."""
    calls = {"gloo": "all_reduce", "mlx-ring": "all_sum"}
    said = {
        "same-model": "DIVERGENT: prefill logits",
        "takes-part": "the logits of rank 0 did not move",
    }
    return Case(
        kind=kind,
        variant="model",
        ground=LINEAR,
        at="loaded",
        sees=sees,
        says={name: text for name, text in said.items() if name in sees},
        by_backend={
            backend: {"options": {"operation": call, "nth": nth}} for backend, call in calls.items()
        },
    )


IN_ADD = {"hang": {"function": "reduce"}, "ranks": "every", "within": "20s"}
CASES: tuple[Case, ...] = (
    # Masked: what comes late is not wrong.
    Case(kind="pause", ground=EXCHANGE, options={"for": "200ms"}),
    Case(kind="delay", ground=EXCHANGE, options={"for": "200ms"}),
    Case(kind="start-late", ground=EXCHANGE, options={"for": "200ms"}),
    Case(
        kind="start-order",
        ground=EXCHANGE,
        struck="every",
        options={"order": "reversed", "gap": "50ms"},
    ),
    Case(
        kind="starve",
        ground=EXCHANGE,
        options={"for": "300ms", "burners": 4},
        arguments={"work": 0.05},
    ),
    # Ranks compare no moments of two clocks.
    Case(kind="monotonic-skew", ground=EXCHANGE, options={"by": "5min"}),
    Case(kind="latency", ground=HOSTS, options={"by": "5ms", "jitter": "5ms"}),
    Case(kind="bandwidth", ground=HOSTS, options={"per_second": "1MiB"}),
    Case(kind="loss", ground=HOSTS, options={"share": "2%"}),
    Case(kind="duplicate", ground=HOSTS, options={"share": "20%"}),
    Case(kind="reorder", ground=HOSTS, options={"share": "20%", "by": "2ms"}),
    # The same, for so long that whoever watches the pace has to see it.
    Case(
        kind="pause",
        variant="too-long",
        ground=EXCHANGE,
        effect="silent",
        at="round",
        options={"for": "4s"},
        sees={"keeps-moving": "every", "in-time": "every"},
    ),
    # Silent: only who looks sees it.
    Case(
        kind="perturb",
        ground=EXCHANGE,
        options={"value": "exchanged.score", "absolute": 1},
        at="subject.begin",
        sees={"score-exact": [1], "score-close": [1], "score-most": [1]},
    ),
    Case(
        kind="perturb",
        variant="text",
        ground=EXCHANGE,
        options={"value": "exchanged.digest", "one": "character"},
        at="subject.begin",
        sees={"same-result": [1]},
    ),
    Case(
        kind="env",
        ground=RUNTIME,
        options={"set": {"SHARD_LAYOUT": "another"}},
        sees={"same-environment": [1]},
    ),
    Case(
        kind="clock-skew",
        ground=RUNTIME,
        at="subject.loaded",
        options={"by": "5min", "way": "back"},
        sees={"same-environment": [1]},
    ),
    Case(
        kind="torch-settings",
        ground=RUNTIME,
        at="subject.loaded",
        options={"dtype": "float64"},
        sees={"same-environment": [1]},
        backends=(GLOO,),
        why_not=NOT_TORCH,
    ),
    Case(
        kind="truncated",
        ground=STORE,
        struck=[0],
        at="stored",
        options={"file": "shared/cache/shard.bin", "left": "1KiB"},
        sees={"as-written": "every", "whole": "every"},
    ),
    Case(
        kind="replaced",
        ground=STORE,
        struck=[0],
        at="stored",
        options={"file": "shared/cache/shard.bin", "offset": "4KiB"},
        sees={"as-written": "every"},
    ),
    Case(kind="flip", ground=HOSTS, options={"way": "out"}, sees=FLIPPED),
    # Breaking: what meets it fails, and the report names who did first, and how.
    Case(
        kind="kill",
        ground=EXCHANGE,
        at="round",
        options={"signal": "KILL"},
        sees=ENDED,
        must_fail={"signal": "SIGKILL"},
    ),
    Case(
        kind="raise",
        ground=EXCHANGE,
        at="round",
        options={"error": "MemoryError", "message": "no memory left"},
        sees=ENDED,
        must_fail={"error": "MemoryError", "message": "no memory left"},
    ),
    Case(
        kind="exit",
        ground=EXCHANGE,
        at="round",
        options={"code": 3},
        sees=ENDED,
        must_fail={"code": 3},
    ),
    Case(
        kind="hub",
        ground=FETCH,
        struck="every",
        options={"role": ["tokenizer_config.json"], "answer": {"kind": "missing"}},
        sees={"all-finished": "every"},
        must_fail={"error": "HTTPError", "message": "404"},
    ),
    _storage("open-files", "Too many open files", to=48),
    _storage("file-size", "File too large", to="64KiB"),
    _storage("read-only", "Read-only file system", folder="shared"),
    _storage("no-space", "No space left on device", folder="shared", left="64KiB"),
    _storage("permission-denied", "Permission denied", folder="shared"),
    Case(
        kind="address-space",
        ground=STORE,
        options={"more": "16MiB"},
        sees={"struck-finishes": [1]},
        must_fail={"error": "MemoryError", "source": "held = bytearray(256 * LARGE)"},
    ),
    Case(
        kind="memory",
        ground=STORE,
        options={"more": "16MiB"},
        sees={"struck-finishes": [1]},
        must_fail={"signal": "SIGKILL"},
    ),
    Case(
        kind="flip-frame",
        ground=HOSTS,
        # The operation in the head of gloo's messages; the heads alone, of 48 bytes, announce what
        # nobody waits for.
        options={"byte": 8, "least": 49, "way": "out", "to": [2]},
        must_fail={
            "hang": {"function": "gather", "spins": True},
            "ranks": "every",
            "within": "20s",
        },
        by_backend={
            # The ring's messages have no head: what is flipped is the length that the standard
            # group sends first.
            "mlx-ring": {
                "options": {"byte": 0, "way": "out"},
                "sees": {"struck-finishes": [1]},
                "must_fail": {
                    "error": "MemoryError",
                    "source": "found: list[bytes] = context.group.all_gather(mine)",
                },
            }
        },
    ),
    # A peer is gone in both arms: what is seen is how one survivor of the control takes it.
    _taken("deaf", {"noticed": [0], "all-end": [0]}, says="it returned as if nothing had happened"),
    _taken("late", {"noticed": [0]}, says="it took longer than 2 s", ground=SURVIVE_ALONE),
    _taken("quiet", {"all-end": [0]}, says="it raised an error and ended with code 0"),
    Case(
        kind="kill",
        variant="employer",
        ground=EMPLOY,
        sees={"struck-finishes": [1], "nobody-left": []},
        says={"nobody-left": "1 process remained"},
        must_fail={"signal": "SIGKILL"},
    ),
    Case(
        kind="hub",
        variant="again",
        ground=FETCH_AGAIN,
        struck="every",
        effect="silent",  # the file is right: only the hub's log shows that it was asked for twice
        options={
            "role": ["tokenizer_config.json"],
            "answer": {"kind": "error"},
            "when": {"times": 1},
        },
        sees={"asked": "every"},
        says={"asked": "2 requests, but at most 1 are allowed"},
    ),
    # A model in two halves, beside the whole of it.
    Case(
        kind="perturb",
        variant="logits",
        ground=LINEAR,
        at="subject.begin",
        options={"artefact": "prefill.logits.0", "absolute": 32},
        sees={"same-model": [1], "near": [1]},
        says={"same-model": "DIVERGENT: prefill logits off by 32", "near": "is not close: KL"},
    ),
    Case(
        kind="perturb",
        variant="shard",
        ground=LINEAR,
        at="subject.begin",
        options={"value": "shard.sha256", "one": "character"},
        sees={"covers": [1]},
        says={"covers": " differ from the checkpoint"},
    ),
    Case(
        kind="replaced",
        variant="weights",
        ground=LINEAR,
        struck=[0],
        at="stored",
        options={"file": "shared/cache/model.safetensors", "offset": f"{LAST_HALF}B"},
        sees={"covers": [1], "same-model": "every", "near": "every"},
        says={"covers": " differ from the checkpoint"},
    ),
    _split("lost-contribution", nth=1, sees={"same-model": "every", "near": "every"}),
    _split("stale-payload", nth=PASSES + 2, sees={"takes-part": [1]}),
    # Calls of one rank that a library or a branch got wrong.
    _call("stale-payload"),
    _call("swapped-halves"),
    _call("lost-contribution"),
    _call("doubled-contribution"),
    _call("stale-payload", variant="coded", ground=CODED, sees=DAMAGED),
    _call(
        "swapped-halves",
        variant="coded",
        ground=CODED,
        sees={"correct": "every", "intact": "every"},
    ),
    _call("lost-contribution", variant="coded", ground=CODED, sees=DAMAGED),
    _call("doubled-contribution", variant="coded", ground=CODED, sees=DAMAGED),
    Case(
        kind="flip",
        variant="coded",
        ground=CODED_ON_HOSTS,
        options={"way": "out"},
        sees={"correct": [0, 2], "intact": [1]},
        says={"correct": "in the data from rank 1,", "intact": "what rank 1 passed to"},
    ),
    _call("other-dtype", sees={"in-step": [1]}),
    _call("other-shape", sees={"in-step": [1]}, mlx_ring={"must_fail": IN_ADD}),
    _call("skip-call", sees={"in-step": [1]}, must_fail=IN_ADD),
    _call("repeat-call", sees={"in-step": [1]}, must_fail=IN_ADD),
    _call(
        "reorder-calls",
        sees={"in-step": [1]},
        must_fail=IN_ADD,
        backends=(GLOO,),
        why_not="MLX runs a call when its result is evaluated, so the fault cannot set the order",
    ),
    # Stopping: nobody gets on, and the report names the line at which all of them wait.
    Case(kind="partition", ground=HOSTS, at="round", must_fail=IN_GATHER),
    Case(kind="half-open", ground=HOSTS, at="round", options={"way": "in"}, must_fail=IN_GATHER),
    Case(
        kind="reset",
        ground=HOSTS,
        at="round",
        sees={"all-finished": "every"},
        must_fail={"error": "RuntimeError", "message": "onnection"},
    ),
)

# Eight cells of as many ways to be wrong, for a continuous integration that has minutes.
SENTINELS = frozenset(
    {
        ("pause", "mlx-ring"),
        ("kill", "gloo"),
        ("raise", "mlx-ring"),
        ("perturb", "gloo"),
        ("clock-skew", "mlx-ring"),
        ("truncated", "gloo"),
        ("flip", "mlx-ring"),
        ("partition", "gloo"),
    }
)
