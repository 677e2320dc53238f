"""The scenario about uneven pipelines of mlx-lm: really run, with fewer trials, in the releases
that it compares.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.record.changed import difference
from harness.record.libraries import text_path
from tests.kit.commands import ROOT, Ran, needs_packages

FOLDER = ROOT / "scenarios" / "mlx-lm-uneven-pipeline"
FEWER = ("matrix.ranks=[2]", "matrix.layers=[7]", "trials.candidate=4", "trials.control=4")


@pytest.mark.slow
@pytest.mark.whole
def test_the_report_shows_the_layers_the_tokens_and_the_lines(
    rankproof: Callable[..., Ran], kept_environments: dict[str, str]
) -> None:
    """Seven layers over two ranks: [4, 8) and [0, 3) before, other tokens than the whole model's,
    and the lines.
    """
    given = [
        word for one in (*FEWER, "trials.accept.failure_rate_below=60%") for word in ("--set", one)
    ]
    ran = rankproof("run", str(FOLDER), "--unsigned", *given, env=kept_environments)
    needs_packages(ran)
    assert (ran.code, ran.record.judgement.verdict) == (0, "PASS"), ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    told = {
        arm: {row.check: [one.shown for one in row.cells] for row in cell.samples[arm].values}
        for arm in cell.samples
    }
    assert told == {
        "control": {
            "pipeline.begin": ["4", "0"],
            "pipeline.end": ["8", "3"],
            "pipeline.runs": ["[1,1,1,0,1,1,1]"] * 2,
            "decoded.tokens": ["[30,92,30,92,18,18,18,18]"] * 2,
        },
        "candidate": {
            "pipeline.begin": ["3", "0"],
            "pipeline.end": ["7", "3"],
            "pipeline.runs": ["[1,1,1,1,1,1,1]"] * 2,
            "decoded.tokens": ["[80,18,71,80,18,44,50,17]"] * 2,
        },
    }
    (library,) = ran.record.libraries
    assert (library.distribution, library.versions) == (
        "mlx-lm",
        {"control": "0.31.3", "candidate": "0.32.0"},
    )
    (mended,) = [module for module in library.modules if module.file == "mlx_lm/models/pipeline.py"]
    # Of a longer diff than its share of a report the beginning is shown, and the texts are evidence.
    texts = [
        (ran.folder / text_path(mended.digests[arm][0])).read_bytes()
        for arm in ("control", "candidate")
    ]
    whole = difference(*texts)
    assert mended.lines == whole.lines[: len(mended.lines)]
    assert len(mended.lines) + mended.more == len(whole.lines)
    assert (
        "-        self.start_idx = (self.pipeline_size - self.pipeline_rank - 1) * layers_per_rank"
        in mended.lines
    )
    assert "+        self.start_idx = sum(split[self.pipeline_rank + 1 :])" in whole.lines
    assert (
        "| `mlx_lm/models/pipeline.py` | 10 lines removed, 16 added |"
        in (ran.folder / "report.md").read_text()
    )
    assert (
        "<summary>mlx_lm/models/pipeline.py: 10 lines removed, 16 added"
        in (ran.folder / "appendix.md").read_text()
    )
