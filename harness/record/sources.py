"""`evidence/source-files.sha256`: the files that were tested, in the way `sha256sum` writes them.

One digest of this list names the tested source, also where a tree was dirty or the code lies in no repository.
`sha256sum -c evidence/source-files.sha256` in the results folder checks it.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.forms.manifest import encode
from harness.record.facts import SOURCE_FOLDER

PATH = "evidence/source-files.sha256"


def listing(digests: Mapping[str, str]) -> bytes:
    """The list of both arms' files.

    Args:
        digests: path in the results folder to sha256 in hex; what lies outside `evidence/source/` is left out.
    """
    return encode({path: digest for path, digest in digests.items() if path.startswith(f"{SOURCE_FOLDER}/")})


def of_arm(digests: Mapping[str, str], arm: str) -> dict[str, str]:
    """One arm's files among them, by their path in its folder."""
    prefix = f"{SOURCE_FOLDER}/{arm}/"
    return {path[len(prefix) :]: digest for path, digest in digests.items() if path.startswith(prefix)}
