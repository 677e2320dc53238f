"""`rankproof tokenizer gguf`."""

from __future__ import annotations

import argparse
import errno
import fnmatch
import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import PASS, USAGE
from harness.forms.text import bounded, listed, plural, visible

if TYPE_CHECKING:
    from harness.tokenizer.gguf import Array, GgufFile, GgufFinding, Key

FINDINGS = 1
ABSENT = 3
STRICT = 4
DAMAGED = 5
FORBIDDEN = 15
SHOWN = 100
"""Characters of a text that are printed, and bytes of one in JSON times ten."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    inspect = actions.add_parser(
        "inspect", help="print the metadata keys and tensors of a model file"
    )
    inspect.add_argument("file", type=Path, help="model file")
    inspect.add_argument(
        "--keys",
        metavar="PATTERN",
        default="*",
        help="keys to print, such as 'tokenizer.*' (default: all)",
    )
    inspect.add_argument(
        "--arrays",
        type=_count,
        default=3,
        metavar="N",
        help="number of elements of each array to print (default: 3)",
    )
    inspect.add_argument("--tensors", action="store_true", help="also print each tensor")
    inspect.add_argument("--json", action="store_true", help="print one JSON object")
    check = actions.add_parser("check", help="report what engines would refuse, guess or get wrong")
    check.add_argument("files", type=Path, nargs="+", metavar="file", help="model files")
    check.add_argument(
        "--strict", action="store_true", help="exit with code 4 if the only problems are warnings"
    )
    check.add_argument("--json", action="store_true", help="print one line of JSON per file")


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError("must be a number of elements, 0 or more")
    return int(text)


def main(options: argparse.Namespace) -> int:
    """Look into files."""
    if options.action == "inspect":
        return _each([options.file], lambda file: _inspect(file, options), as_json=options.json)
    return _each(options.files, lambda file: _check(file, options), as_json=options.json)


def _each(paths: list[Path], look: Callable[[GgufFile], int], *, as_json: bool) -> int:
    from harness.tokenizer.gguf import GgufFile, Malformed
    from harness.tokenizer.problem import Unreadable

    worst = PASS
    for path in paths:
        try:
            with GgufFile(path) as file:
                code = look(file)
        except Malformed as error:
            code = _refuse(
                path, str(error), DAMAGED, as_json=as_json, kind=error.code, offset=error.offset
            )
        except Unreadable as error:  # a chat template that cost more than it may
            code = _refuse(path, str(error), FINDINGS, as_json=as_json, kind="chat-template")
        except OSError as error:
            code = {
                errno.ENOENT: ABSENT,
                errno.ENOTDIR: ABSENT,
                errno.EACCES: FORBIDDEN,
                errno.EPERM: FORBIDDEN,
            }.get(error.errno or 0, USAGE)
            said = (
                "is a folder; give a file"
                if error.errno == errno.EISDIR or path.is_dir()
                else error.strerror
            )
            code = _refuse(
                path,
                str(said),
                code,
                as_json=as_json,
                kind=errno.errorcode.get(error.errno or 0, "OSError"),
            )
        worst = max(worst, code)
    return worst


def _refuse(
    path: Path, message: str, code: int, *, as_json: bool, kind: str, offset: int | None = None
) -> int:
    print(f"{visible(str(path))}: {visible(message)}", file=sys.stderr)
    if as_json:
        _print_json(
            {"file": str(path), "refused": {"code": kind, "offset": offset, "message": message}}
        )
    return code


def _inspect(file: GgufFile, options: argparse.Namespace) -> int:
    from harness.tokenizer.gguf import Array

    keys = [key for name, key in file.keys.items() if fnmatch.fnmatchcase(name, options.keys)]
    if options.json:
        _print_json(
            {
                "file": file.path,
                "size": file.size,
                "version": file.version,
                "data": file.data,
                "fingerprint": _fingerprint(file),
                "keys": {key.name: _described(file, key, options.arrays) for key in keys},
                "tensors": [
                    {
                        "name": tensor.name,
                        "dimensions": list(tensor.dimensions),
                        "type": tensor.type,
                        "offset": tensor.offset,
                        "size": tensor.size,
                    }
                    for tensor in file.tensors.values()
                ],
            }
        )
        return PASS
    counts = f"{plural(len(file.keys), 'key')}, {plural(len(file.tensors), 'tensor')}"
    print(f"{visible(file.path)}: GGUF version {file.version}, {file.size} bytes, {counts}")
    if (fingerprint := _fingerprint(file)) is not None:
        print(f"fingerprint of its tokenizer: {fingerprint}")
    for key in keys:
        if isinstance(key.value, Array):
            head = ", ".join(
                _text(element) for element in _elements(file, key.value, options.arrays)
            )
            more = ", …" if key.value.count > options.arrays else ""
            print(f"{visible(key.name)} = {key.value.count} x {key.value.type} [{head}{more}]")
            print(f"    sha256:{file.digest(key.value)}")
        else:
            print(f"{visible(key.name)} = {_text(key.value)} ({key.type})")
    if options.tensors:
        for tensor in file.tensors.values():
            shape = " x ".join(map(str, tensor.dimensions))
            print(
                f"{visible(tensor.name)}: {tensor.type} {shape}, {tensor.size} bytes at"
                f" {tensor.offset}"
            )
    return PASS


def _fingerprint(file: GgufFile) -> str | None:
    from harness.tokenizer.formats import gguf_form
    from harness.tokenizer.problem import Unreadable

    try:
        return gguf_form(file).fingerprint
    except Unreadable:  # it holds none, or one that `check` has more to say about
        return None


def _described(file: GgufFile, key: Key, count: int) -> dict[str, Any]:
    from harness.tokenizer.gguf import Array

    if not isinstance(key.value, Array):
        return {"type": key.type, "value": _plain(key.value), "offset": key.offset}
    return {
        "type": f"array of {key.value.type}",
        "count": key.value.count,
        "first": [_plain(element) for element in _elements(file, key.value, count)],
        "sha256": file.digest(key.value),
        "offset": key.offset,
    }


def _elements(file: GgufFile, array: Array, count: int) -> list[bytes | int | float]:
    from harness.tokenizer.gguf import Array

    if array.type == "string":
        return list(islice(file.strings(array), count))
    kept = min(count, array.count)
    size = (array.stop - array.start) // max(1, array.count)
    return list(
        file.numbers(
            Array(type=array.type, count=kept, start=array.start, stop=array.start + kept * size)
        )
    )


def _plain(value: bytes | float) -> Any:
    """Value for JSON, which has no word for NaN and none for bytes that are not text."""
    if isinstance(value, bytes):
        return bounded(value.decode(errors="backslashreplace"), SHOWN * 10)
    return value if isinstance(value, int) or abs(value) < float("inf") else str(value)


def _text(value: bytes | float) -> str:
    if isinstance(value, bytes):
        return f'"{visible(value.decode(errors="backslashreplace"), SHOWN)}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _check(file: GgufFile, options: argparse.Namespace) -> int:
    from harness.tokenizer.gguf import check

    findings = check(file)
    severities = {finding.severity for finding in findings}
    code = STRICT if options.strict and "warning" in severities else PASS
    if "error" in severities:
        code = FINDINGS
    if options.json:
        _print_json({"file": file.path, "findings": [_row(finding) for finding in findings]})
        return code
    counts = [
        plural(sum(finding.severity == kind for finding in findings), kind)
        for kind in ("error", "warning", "note")
    ]
    print(
        f"{visible(file.path)}:"
        f" {listed(counts).replace(' or ', ', ') if findings else 'no problems found'}"
    )
    for finding in findings:
        place = f" at byte {finding.offset}" if finding.offset >= 0 else ""
        print(
            f"  {finding.severity} {finding.code}: {visible(finding.where)}{place}:"
            f" {visible(finding.message)}"
        )
        if finding.remedy:
            print(f"    {finding.remedy}")
    return code


def _row(finding: GgufFinding) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "code": finding.code,
        "where": finding.where,
        "offset": finding.offset,
        "message": finding.message,
        "remedy": finding.remedy,
    }


def _print_json(row: dict[str, Any]) -> None:
    # Escaped: what a file holds must neither act on a terminal nor break an encoding.
    print(json.dumps(row, allow_nan=False))
