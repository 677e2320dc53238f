"""One question to a library, whichever version of it the arm's environment holds."""

from packaging import version


def check(context):
    """Ask for an invalid version; 21.3 hands one back, 22.0 and later refuse."""
    refused = False
    try:
        version.parse("llama-3-8b")
    except version.InvalidVersion:
        refused = True
    assert refused
    context.emit("refused")
