"""Entry of a fresh rank: a new interpreter that reads its spec and lives it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.rank.inside import load
from harness.rank.lifecycle import leave, live
from harness.rank.spec import RankSpec


def main(path: str) -> None:
    """Live the rank that the spec at `path` describes; never returns."""
    spec = RankSpec.from_json(json.loads(Path(path).read_text()))
    leave(live(spec, load(spec.group).join))


if __name__ == "__main__":
    main(sys.argv[1])
