"""How each command that a page shows is run here, or the reason why it is not.

A command that a page shows and that does not stand here fails the tests: whoever writes it says how
it is run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Run, in the order of the page, in a folder that is prepared for it.

    Attributes:
        codes: exit codes that it may end with.
        needs: a program that has to be there; without it the test is skipped.
    """

    codes: tuple[int, ...] = (0,)
    needs: str = ""


@dataclass(frozen=True)
class NotRun:
    """Not run: only its options are looked at."""

    because: str


RUN = Run()
INDEX = NotRun(
    "installs from a package index; tests/test_core.py and tests/test_packaging.py install the"
    " wheel"
)
NIX = NotRun("needs Nix and its packages; `nox -s nix -- --build` does it")
MINUTES = NotRun("takes minutes; .ci/run runs it")
FINDINGS = "docs/findings"
SCENARIO = NotRun(
    "takes minutes, on demand; tests/run runs the shipped scenarios with fewer trials"
)
MACHINES = NotRun("needs machines; tests/world/machines runs it against a real sshd")
TESTS = NotRun("runs the tests, of which this is one")

BENCH = NotRun("measures for a minute; tests/test_bench.py measures some of it")
SERVER = NotRun("needs a server, or takes minutes; tests/conformance asks several and verifies")
CLUSTER = NotRun("needs a Ray cluster; nox -s farm starts one and runs it")

SHOWN: dict[str, dict[str, Run | NotRun]] = {
    "docs/conformance.md": {
        "rankproof conformance http://127.0.0.1:8000/v1": SERVER,
        "rankproof conformance mlx_lm.server": SERVER,
        "rankproof show results/conformance/latest": SERVER,
        "rankproof verify results/conformance/latest --mine": SERVER,
        "rankproof conformance mlx_lm.server==0.31.2,mlx==0.31.0": SERVER,
        "rankproof conformance mlx_lm.server --mode speculative": SERVER,
        "rankproof lab served mlx_lm.server mlx_lm.server==0.31.2,mlx==0.31.0 --mode plain --mode small-chunks": (
            SERVER
        ),
        "rankproof lab served http://127.0.0.1:8000/v1 http://127.0.0.1:8001/v1 --model my-model": SERVER,
        "rankproof lab served --mode all --within 900": SERVER,
    },
    "docs/farming.md": {
        "pip install 'ray[client]==2.60.0'": CLUSTER,
        "ray start --head": CLUSTER,
        "rankproof run SCENARIO --on ray": CLUSTER,
        "rankproof run SCENARIO --on ray://HEAD:10001": CLUSTER,
        "rankproof run SCENARIO --on local": SCENARIO,
    },
    "docs/machines.md": {
        "rankproof hosts prepare hosts.json --lock locks/cpu.txt": MACHINES,
        "rankproof hosts collect results/SCENARIO/RUN": MACHINES,
        "rankproof run scenarios/collectives-over-hosts --hosts test:3": MACHINES,
        "rankproof hosts check hosts.json": MACHINES,
        "rankproof run scenarios/tokenizer-on-every-rank --hosts hosts.json": MACHINES,
        "rankproof run SCENARIO --hosts hosts.json --placement pack --hosts-python /opt/rankproof/bin/python": (
            MACHINES
        ),
        "rankproof run SCENARIO --hosts ray": CLUSTER,
        "rankproof run SCENARIO --hosts ray://HEAD:10001 --placement 0=node-1,1=node-1,2=node-2": (
            CLUSTER
        ),
    },
    "docs/inference.md": {
        "rankproof run scenarios/single-vs-distributed/scenario.yaml": SCENARIO,
        'rankproof run scenarios/single-vs-distributed/scenario.yaml --set "matrix.ranks=[1, 2, 3, 4]" --set "subject.control.must_fail.cells={ranks: [2, 3, 4]}"': (
            SCENARIO
        ),
        'rankproof run scenarios/single-vs-distributed/scenario.yaml --set "matrix.ranks=[2, 3]" --set "matrix.backend=[mlx-ring]" --set "matrix.exclude=[]"': (
            SCENARIO
        ),
        "rankproof run scenarios/two-releases/scenario.yaml --set subject.candidate.environment.packages.mlx-lm=0.32.1 --set subject.control.environment.packages.mlx-lm=0.32.0 --set inputs.model.made=minimax --set subject.use=mlx-tensor": (
            SCENARIO
        ),
        "rankproof lab bisect scenarios/minimax-over-two-ranks --package mlx-lm --between 0.30.6 0.31.2": (
            SCENARIO
        ),
        "rankproof run scenarios/exo-tensor/scenario.yaml --repo PATH": SCENARIO,
        "rankproof run scenarios/gpt-fast/scenario.yaml --repo PATH": SCENARIO,
    },
    "README.md": {
        "git clone REPOSITORY_URL rankproof": RUN,
        "pip install ./rankproof": INDEX,
        "pip install git+REPOSITORY_URL": INDEX,
        "pip install rankproof-0.1.0-py3-none-any.whl": INDEX,
        "pip install './rankproof[torch]'": INDEX,
        "rankproof run scenarios/single-vs-distributed/transformers.yaml --set inputs.model=FOLDER --set subject.use=hf-tensor --set 'matrix.ranks=[2]'": (
            SCENARIO
        ),
        "rankproof lint scenarios/mean": RUN,
        "rankproof run scenarios/mean --try": RUN,
        "rankproof run scenarios/mean": RUN,
        "rankproof run scenarios/share": RUN,
        "rankproof verify results/mean/latest/report.md --signer SHA256:…": RUN,
        # Under CI a key of this machine is nobody's word.
        "rankproof verify results/mean/latest/report.md --mine": Run(codes=(0, 64)),
        "rankproof show --issue results/mean/latest/report.md": RUN,
        "rankproof bundle results/mean/latest": RUN,
        "rankproof reproduce results/mean/latest/report.md --signer SHA256:…": RUN,
        "pipx run nox -s validate": MINUTES,
        "pipx run nox -s matrix -- --sample": MINUTES,
        "pipx run nox -s tests": TESTS,
        "pipx run nox -s quick": TESTS,
        "nix develop -c nox -s validate": NIX,
    },
    "CONTRIBUTING.md": {
        "pipx run nox -s quick": TESTS,
        ".nox/env-cpu-3.11/bin/python -m pytest -q -n2 tests/tokenizer": TESTS,
        ".nox/env-cpu-3.11/bin/python -m pytest -q -k identity tests": TESTS,
        ".nox/env-cpu-3.11/bin/rankproof run scenarios/late-rank --try": RUN,
    },
    "docs/examples/plugin/README.md": dict.fromkeys(
        (
            "pip install ./docs/examples/plugin",
            "rankproof list faults",
            "rankproof run docs/examples/plugin/scenario/steps.yaml",
        ),
        NotRun("tests/test_plugin_example.py does it, in its own environment"),
    ),
    "docs/scale.md": {"nox -s bench -- --only scale": BENCH},
    "docs/gate.md": {
        "rankproof gate --commit HEAD --policy .rankproof/policy.yaml results/": NotRun(
            "needs a policy and reports of a commit; tests/gate/test_command.py runs it"
        ),
    },
    "docs/discovery.md": {
        "rankproof tokenizer gguf check models/model.gguf": RUN,
        "rankproof tokenizer gguf inspect models/model.gguf --keys 'tokenizer.*'": RUN,
        "rankproof tokenizer resolve models/model.gguf --explain": RUN,
        "rankproof tokenizer fetch --for-models models/": RUN,
        "rankproof tokenizer fetch org/model --revision v1.0": RUN,
        "rankproof tokenizer lock org/model --revision v1.0 --model models/model.gguf -o models/tokenizer.lock.json": (
            RUN
        ),
        "rankproof tokenizer fetch --lock models/tokenizer.lock.json": RUN,
        "rankproof tokenizer verify org/model --lock models/tokenizer.lock.json --model models/model.gguf --offline": (
            RUN
        ),
        "rankproof tokenizer doctor --models models/": RUN,
        "rankproof tokenizer cache ls": RUN,
        "rankproof tokenizer cache verify --offline": RUN,
        "rankproof tokenizer cache prune --older-than 30d --keep-newest 10": RUN,
        "rankproof tokenizer cache quarantine": RUN,
        'rankproof tokenizer infer --model models/model.gguf --prompt "Test" --auto-download --max-tokens 4': NotRun(
            "runs a model with torch; tests/tokenizer/engines/test_generation.py does, and compares"
            " its tokens"
        ),
    },
    "docs/gguf.md": {
        "rankproof tokenizer gguf inspect model.gguf": RUN,
        "rankproof tokenizer gguf check models/*.gguf": Run(codes=(1,)),
    },
    "docs/hub.md": {
        "rankproof lab hub layouts --out repositories": RUN,
        "rankproof lab hub serve repositories --rules rules.yaml --log access.jsonl": NotRun(
            "serves until it is stopped; tests/hub/test_command.py runs it"
        ),
        "export HF_ENDPOINT=http://127.0.0.1:43117": NotRun("is for the shell that asks the hub"),
    },
    "docs/matrix.md": dict.fromkeys(
        (
            "rankproof lab matrix",
            "rankproof lab matrix --seeds 100",
            "rankproof lab matrix --only kill --backend gloo",
            "rankproof lab matrix --only perturb/text",
            "rankproof lab matrix --sample",
            "rankproof lab matrix --resume results/matrix/20261122T125741Z-923a4a8b.unfinished",
        ),
        NotRun(
            "takes minutes to hours; tests/series/matrix makes, kills, resumes and verifies a"
            " small one"
        ),
    ),
    "docs/search.md": dict.fromkeys(
        (
            "rankproof lab search",
            "rankproof lab search --without-arrays",
            "rankproof lab search --model qwen2",
            "rankproof lab search --resume results/search/20261122T163628Z-b179e7db.unfinished",
        ),
        NotRun("takes a quarter of an hour; tests/series/search makes and verifies a small one"),
    ),
    "docs/operators.md": dict.fromkeys(
        (
            "rankproof lab operators",
            "rankproof lab operators --library collectives --ranks 2",
            "rankproof lab operators --operators safetensors --depth 200",
            "rankproof lab operators --within 600",
            "rankproof lab operators --resume results/operators/20261127T174145Z-5e479246.unfinished",
        ),
        NotRun("takes an hour or more; tests/series/operators makes and verifies small ones"),
    ),
    "docs/nix.md": {
        **dict.fromkeys(
            (
                "nix develop -c nox -s validate",
                "nix develop .#cuda -c nox -s validate",
                "nix run github:OWNER/rankproof#validate -- scenarios/tokenizer-on-every-rank",
                "nix run github:OWNER/rankproof -- verify report.md --signer SHA256:…",
            ),
            NIX,
        ),
        "nox -s nix": MINUTES,
        "nox -s nix -- --build": MINUTES,
    },
    "docs/reading.md": {
        "rankproof diff results/A results/B": RUN,
        "rankproof show --issue results/A": RUN,
        "rankproof view": RUN,
    },
    "docs/reproduce.md": {
        "rankproof reproduce results/…/report.md --signer SHA256:…": RUN,
        "rankproof reproduce tokenizer-on-every-rank-….rankproof.tar.xz --signer SHA256:…": RUN,
        "rankproof reproduce REPORT --signer SHA256:… --fresh-seeds": RUN,
        "rankproof reproduce REPORT --signer SHA256:… --vary --dry-run": RUN,
        "rankproof reproduce REPORT --signer SHA256:… --vary": RUN,
        "rankproof bundle results/latest": RUN,
        "tar -tJf SCENARIO-RUN.rankproof.tar.xz": Run(needs="xz"),
    },
    "docs/matrix-report/README.md": {
        "rankproof verify docs/matrix-report/every-kind/report.md --allowed-signers docs/matrix-report/allowed_signers": (
            RUN
        ),
    },
    "docs/findings/README.md": {
        f"rankproof verify {FINDINGS}/stop-string.rankproof.tar.xz --allowed-signers {FINDINGS}/allowed_signers": (
            RUN
        ),
        f"rankproof show --issue {FINDINGS}/stop-string.rankproof.tar.xz --allowed-signers {FINDINGS}/allowed_signers": (
            RUN
        ),
        "rankproof reproduce docs/findings/stop-string.rankproof.tar.xz --allowed-signers docs/findings/allowed_signers": NotRun(
            "takes minutes; each was reproduced when it was made"
        ),
    },
    "docs/search-report/README.md": {
        "rankproof verify docs/search-report/four-models/report.md --allowed-signers docs/search-report/allowed_signers": (
            RUN
        ),
    },
    "docs/sample/README.md": {
        "rankproof verify docs/sample/late-rank --allowed-signers docs/sample/allowed_signers": RUN,
        "rankproof show docs/sample/late-rank --allowed-signers docs/sample/allowed_signers": RUN,
    },
    "docs/scenarios.md": {
        "rankproof run SCENARIO --repo PATH --candidate REV --control REV": RUN,
    },
    "docs/tokenizer.md": {
        "pip install 'rankproof[tokenizer]'": INDEX,
        "rankproof tokenizer identity PATH [--json]": RUN,
        "rankproof tokenizer diff A B [--semantic] [--json]": Run(codes=(1,)),
        "rankproof tokenizer resolve model.gguf [--explain] [--strict]": Run(codes=(4,)),
        "rankproof tokenizer parity A B [--json]": Run(codes=(1,)),
        "rankproof tokenizer contract PATH --golden golden.json --record": RUN,
        "rankproof tokenizer contract PATH --golden golden.json": RUN,
        "rankproof tokenizer lock org/model --revision v1.0 -o tokenizer.lock.json": RUN,
        "rankproof tokenizer verify org/model --lock tokenizer.lock.json": RUN,
        "rankproof tokenizer verify ./folder --lock tokenizer.lock.json": RUN,
    },
    "docs/verify.md": {
        "rankproof verify results/<scenario>/<run>/report.md": RUN,
        "jq -j .payload attestation.dsse.json | base64 -d > payload": Run(needs="jq"),
        "jq -j '.signatures[0].sig' attestation.dsse.json | base64 -d > payload.sig": Run(
            needs="jq"
        ),
        "{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' \"$(wc -c < payload)\"; cat payload; } | ssh-keygen -Y verify -f allowed_signers -I ci@example.org -n attestation@rankproof -s payload.sig": Run(
            needs="jq"
        ),
    },
    "locks/README.md": {
        "nox -s lock": NotRun("moves the locks; asks a package index"),
        "nox -s lock -- --upgrade": NotRun("moves the locks; asks a package index"),
        "python3.11 -m venv .venv && . .venv/bin/activate": INDEX,
        "pip install --require-hashes --only-binary :all: --find-links FOLDER-WITH-THE-TORCH-WHEEL -r locks/cpu.txt -r locks/dev.txt": (
            INDEX
        ),
        "pip install --no-deps --no-build-isolation -e .": INDEX,
    },
    "packages/integrity/README.md": {"pip install ./packages/integrity": INDEX},
    "scenarios/exo-runner/README.md": {
        "rankproof run scenarios/exo-runner/scenario.yaml --repo PATH": SCENARIO,
        "rankproof run scenarios/exo-runner/scenario.yaml --repo PATH --set subject.environment.torch=any": (
            SCENARIO
        ),
    },
    "scenarios/two-releases/README.md": {
        "rankproof run scenarios/two-releases/scenario.yaml": SCENARIO,
        'rankproof run scenarios/two-releases/scenario.yaml --set subject.candidate.environment.packages.mlx-lm=0.32.1 --set subject.control.environment.packages.mlx-lm=0.32.0 --set inputs.model.made=minimax --set subject.use=mlx-tensor --set "matrix.ranks=[2]"': (
            SCENARIO
        ),
    },
    "scenarios/exo-tensor/README.md": {
        "rankproof run scenarios/exo-tensor/scenario.yaml --repo PATH": SCENARIO,
    },
    "scenarios/gpt-fast/README.md": {
        "rankproof run scenarios/gpt-fast/scenario.yaml --repo PATH": SCENARIO,
    },
    "scenarios/minimax-over-two-ranks/README.md": {
        "rankproof run scenarios/minimax-over-two-ranks/scenario.yaml": SCENARIO,
    },
    "scenarios/mlx-lm-uneven-pipeline/README.md": {
        "rankproof run scenarios/mlx-lm-uneven-pipeline": SCENARIO
    },
    "scenarios/ranks-agree-on-tokenizer/README.md": {
        "rankproof run scenarios/ranks-agree-on-tokenizer": SCENARIO,
    },
    "scenarios/silent-wrong-tokenizer/README.md": {
        "rankproof run scenarios/silent-wrong-tokenizer": SCENARIO,
        "python scenarios/silent-wrong-tokenizer/table.py results/silent-wrong-tokenizer/latest": (
            SCENARIO
        ),
        "rankproof run scenarios/silent-wrong-tokenizer --set 'matrix.layouts=[\"llama2\"]' --set 'matrix.kinds=[\"missing\"]' --set 'matrix.when=[\"always once\"]'": (
            SCENARIO
        ),
    },
    "scenarios/checkpoint-and-vocabulary/README.md": {
        "rankproof run scenarios/checkpoint-and-vocabulary": SCENARIO
    },
    "scenarios/shard-rule-sweep/README.md": {
        "rankproof run scenarios/shard-rule-sweep/hf-tensor.yaml": SCENARIO,
        'rankproof run scenarios/shard-rule-sweep/hf-tensor.yaml --set inputs.llama=FOLDER --set "matrix.model=[llama]" --set "matrix.exclude=[]"': (
            SCENARIO
        ),
        'rankproof run scenarios/shard-rule-sweep/hf-tensor.yaml --set "matrix.ranks=[2]" --set "matrix.model=[qwen2, mixtral]" --set "matrix.exclude=[]"': (
            SCENARIO
        ),
    },
    "scenarios/threads-and-forks/README.md": {
        'rankproof run scenarios/threads-and-forks/remote-code-copy.yaml --set "faults=[]" --set subject.candidate.with.stands=false --set subject.control.with.stands=false': (
            SCENARIO
        ),
    },
    "scenarios/chunk-boundary-prefill/README.md": {
        "rankproof run scenarios/chunk-boundary-prefill": SCENARIO
    },
    "scenarios/kv-isolation/README.md": {
        "rankproof run scenarios/kv-isolation": SCENARIO,
        'rankproof run scenarios/kv-isolation --set "matrix.ranks=[2]" --set "matrix.backend=[gloo]"': (
            SCENARIO
        ),
    },
    "scenarios/warm-up-and-generate/README.md": {
        "rankproof run scenarios/warm-up-and-generate/scenario.yaml": SCENARIO,
        'rankproof run scenarios/warm-up-and-generate/mlx.yaml --set "matrix.ranks=[2]"': SCENARIO,
    },
    "scenarios/prompt-ids/README.md": {"rankproof run scenarios/prompt-ids": SCENARIO},
    "scenarios/stop-and-finish/README.md": {
        "rankproof run scenarios/stop-and-finish/stop-string.yaml": SCENARIO,
    },
    "scenarios/streaming-detokenizer/README.md": {
        "rankproof run scenarios/streaming-detokenizer/first-space.yaml": SCENARIO
    },
    "scenarios/tokenizer-backend-under-quota/README.md": {
        "rankproof run scenarios/tokenizer-backend-under-quota": SCENARIO,
        "rankproof run scenarios/tokenizer-backend-under-quota/sweep-quota.yaml": SCENARIO,
        "rankproof run scenarios/tokenizer-backend-under-quota/one-request.yaml --set subject.control.environment.packages.transformers=5.4.0": (
            SCENARIO
        ),
        "rankproof run scenarios/tokenizer-backend-under-quota/one-request.yaml --set 'faults[0].role=tokenizer.json'": (
            SCENARIO
        ),
        "rankproof run scenarios/tokenizer-backend-under-quota/one-request.yaml --set faults=[]": (
            SCENARIO
        ),
        "python scenarios/tokenizer-backend-under-quota/sweep.py QUOTA_RUN CHANCE_RUN docs/images/backend-sweep.svg": (
            SCENARIO
        ),
    },
}
# Scripts, by their first line: each is one command.
SCRIPTS: dict[str, NotRun] = {
    "signer=ci@example.org": NotRun(
        "tests/trust/test_verify_doc.py runs these lines in a plain POSIX shell"
    ),
    'echo \'{"event": "ready"}\' >&3          # events: one JSON object a line, on descriptor 3': (
        NotRun("is the file scenarios/share/rank.sh, which `rankproof run scenarios/share` runs")
    ),
}

# What pages tell of and other branches bring. To be emptied where those are merged: a test fails
# when one is there.
OPTIONS_EXPECTED_LATER: frozenset[tuple[str, str]] = frozenset()
SESSIONS_EXPECTED_LATER: frozenset[str] = frozenset()
PAGES_AT_WORK: frozenset[str] = frozenset()
"""Pages that another branch changes, so that their commands may be other ones than stand above."""
