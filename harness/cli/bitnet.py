"""Commands by the names that the guide of BitNet.rs gives them.

Docs/discovery.md says what each of them is here.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from harness.cli import USAGE, give_up
from harness.cli.tokenizer import GGUF, fetch

ALIASES = {
    "compat-check": "tokenizer gguf check",
    "inspect-gguf": "tokenizer gguf inspect",
    "pre-download-tokenizers": "tokenizer fetch --for-models",
    "crossval": "tokenizer parity",
}
PASSED_ON = ("--corpus", "--texts", "--seed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; its name is the last word of the parser's."""
    name = parser.prog.rpartition(" ")[2]
    parser.description = f"The same as `rankproof {ALIASES[name]}`."
    if name == "pre-download-tokenizers":
        fetch.arguments(parser)
        parser.add_argument(
            "--model-dir",
            type=Path,
            required=True,
            dest="for_models",
            metavar="FOLDER",
            help="a folder of GGUF files",
        )
    elif name == "crossval":
        parser.add_argument(
            "--tokenizer-only",
            action="store_true",
            help="required: this command compares only token ids",
        )
        parser.add_argument(
            "--model", type=Path, metavar="FILE", help=f"a GGUF file (default: {GGUF})"
        )
        parser.add_argument(
            "--tokenizer",
            type=Path,
            metavar="PATH",
            help="tokenizer to compare with (default: the one found for the model)",
        )
        for option in PASSED_ON:
            parser.add_argument(option, metavar="…", help="same as for `tokenizer parity`")
    else:
        if name == "compat-check":
            parser.add_argument("--show-kv", action="store_true", help="also print the keys")
            parser.add_argument("--kv-limit", metavar="N", help="ignored: all keys are printed")
            parser.add_argument(
                "--strict",
                action="store_true",
                help="exit with code 4 if the only problems are warnings",
            )
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("model", type=Path, metavar="FILE", help="a GGUF file")


def main(options: argparse.Namespace) -> int:
    """Run the command that the name stands for."""
    from harness.cli import main as rankproof

    name = options.command
    if name == "pre-download-tokenizers":
        return fetch.main(options)
    if name == "crossval":
        return _crossval(options)
    shared = ["--json"] if options.json else []
    if name == "inspect-gguf":
        return rankproof(["tokenizer", "gguf", "inspect", str(options.model), *shared])
    if options.show_kv:
        rankproof(["tokenizer", "gguf", "inspect", str(options.model), *shared])
    return rankproof(
        [
            "tokenizer",
            "gguf",
            "check",
            str(options.model),
            *shared,
            *(["--strict"] if options.strict else []),
        ]
    )


def _crossval(options: argparse.Namespace) -> int:
    from harness.cli import main as rankproof

    if not options.tokenizer_only:
        return give_up(
            "crossval",
            "--tokenizer-only is required; to compare the logits of two engines, write a"
            " `compare` scenario",
            USAGE,
        )
    model = options.model or (Path(os.environ[GGUF]) if os.environ.get(GGUF) else None)
    if model is None:
        return give_up("crossval", f"give --model, or set {GGUF}", USAGE)
    other = options.tokenizer
    if other is None:
        from harness.cli.tokenizer import unreadable
        from harness.tokenizer.discovery import resolve
        from harness.tokenizer.problem import Unreadable

        try:
            resolution = resolve(model, strict=True)
        except Unreadable as error:
            return unreadable("parity", error)
        if resolution.chosen is None:
            print(
                f"{model}: no tokenizer is proven to belong to this model; give one with --tokenizer",
                file=sys.stderr,
            )
            # The command explains why, and its exit code is ours.
            return rankproof(["tokenizer", "resolve", str(model), "--explain", "--strict"])
        other = resolution.chosen.path
    given = [(option, getattr(options, option.removeprefix("--"))) for option in PASSED_ON]
    more = [word for option, value in given if value is not None for word in (option, value)]
    return rankproof(["tokenizer", "parity", str(model), str(other), *more])
