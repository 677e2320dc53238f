"""`rankproof lab hub`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from harness.cli import INCONCLUSIVE, PASS, USAGE, give_up


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    serve = actions.add_parser(
        "serve",
        help="serve the repositories FOLDER/ORG/NAME locally and print the HF_ENDPOINT to set",
    )
    serve.add_argument("folder", type=Path, help="folder that contains the repositories")
    serve.add_argument(
        "--rules", type=Path, metavar="FILE", help="file of fault rules (default: inject no faults)"
    )
    serve.add_argument(
        "--log", type=Path, metavar="FILE", help="append one line of JSON per request to this file"
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1)",
    )
    serve.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="N",
        help="port to listen on (default: any free port)",
    )

    layouts = actions.add_parser("layouts", help="write small tokenizer repositories to serve")
    layouts.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder to create rankproof/NAME in",
    )
    layouts.add_argument(
        "layout", nargs="*", default=None, metavar="NAME", help="layouts to write (default: all)"
    )


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 6 else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be a port from 0 to 65535")
    return number


def main(options: argparse.Namespace) -> int:
    """Serve a folder of repositories, or write the project's own layouts."""
    return _serve(options) if options.action == "serve" else _layouts(options)


def _serve(options: argparse.Namespace) -> int:
    from harness.hub import Hub, HubError, RulesError

    hub = Hub(
        options.folder,
        rules=options.rules,
        log=options.log,
        host=options.host,
        port=options.port,
        keep=False,
    )
    try:
        hub.start()
    except RulesError as error:
        print(error, file=sys.stderr)
        return USAGE
    except HubError as error:
        return give_up("lab hub", error, INCONCLUSIVE)
    stopping = threading.Event()
    # Both by hand: a shell starts a command in the background with SIGINT ignored, and Python then
    # leaves it so.
    before = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        for identity, repository in hub.repositories.items():
            for revision in repository.revisions.values():
                print(
                    f"# {identity} {revision.name} {revision.commit} {len(revision.files)} files",
                    flush=True,
                )
        print(f"export HF_ENDPOINT={hub.endpoint}", flush=True)
        while not stopping.is_set() and not hub.wait(0.5):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    try:
        hub.stop()
    except HubError as error:
        return give_up("lab hub", error, INCONCLUSIVE)
    print(json.dumps(hub.counts()), file=sys.stderr)
    return PASS


def _layouts(options: argparse.Namespace) -> int:
    from harness.hub import HubError
    from harness.hub.layouts import write

    try:
        places = write(options.out, options.layout or None)
    except HubError as error:
        return give_up("lab hub", error, USAGE)
    except OSError as error:
        why = error.strerror or error
        return give_up("lab hub", f"--out {options.out}: {why}; give a writable folder", USAGE)
    for place in places:
        print(place)
    return PASS
