"""What it costs to look into a GGUF file with a large vocabulary, beside the reader of the package
gguf.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.tokenizers import synthetic
from tests.tokenizer.formats.conversion import of_serialised

TOKENS = 128_000
# Each in a process of its own, so that what it holds is its own: seconds of CPU time, and bytes
# that it added.
_READERS = {
    "inspect": (
        "from harness.tokenizer.gguf import GgufFile\ndef look(path):\n GgufFile(path).close()"
    ),
    "inspect_and_fingerprint": (
        "from harness.tokenizer.gguf import GgufFile\nfrom harness.tokenizer.formats import"
        " gguf_form\ndef look(path):\n with GgufFile(path) as file: gguf_form(file).fingerprint"
    ),
    "gguf_reader": "from gguf import GGUFReader\ndef look(path):\n GGUFReader(path)",
}
_MEASURED = """
import json, resource, sys, time
path, rounds = sys.argv[1], int(sys.argv[2])
before, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
for _ in range(rounds):
    begin = time.process_time(); look(path); times.append(time.process_time() - begin)
print(json.dumps([times, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024]))
"""


def measure(folder: Path, *, rounds: int = 9) -> dict[str, Any]:
    """Seconds as minimum, median and maximum, and bytes of memory, of each reader.

    And how many times faster we are.
    """
    made = folder / "model.gguf"
    made.write_bytes(of_serialised(json.loads(synthetic(tokens=TOKENS).to_str())).bytes())
    found: dict[str, Any] = {}
    for name, code in _READERS.items():
        count = 1 if name == "gguf_reader" else rounds
        command = [sys.executable, "-c", code + _MEASURED, str(made), str(count)]
        times, memory = json.loads(
            subprocess.run(command, capture_output=True, check=True, text=True).stdout
        )
        found[name] = {
            "seconds": [min(times), statistics.median(times), max(times)],
            "bytes": memory,
        }
    ours, more, theirs = (found[name]["seconds"][0] for name in _READERS)
    return found | {"ratio": theirs / ours, "fingerprint_seconds": more - ours}


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    print(f"a GGUF file with {TOKENS} tokens and merges, CPU time")
    for name in _READERS:
        low, middle, high = found[name]["seconds"]
        print(
            f"  {name:<24} {middle:.4f} s ({low:.4f} to {high:.4f}),"
            f" {found[name]['bytes'] / 2**20:.1f} MiB"
        )
    print(
        f"  inspect is {found['ratio']:.0f} times faster; the fingerprint adds"
        f" {found['fingerprint_seconds']:.4f} s"
    )
