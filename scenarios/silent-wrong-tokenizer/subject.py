"""Walk the faults of a hub: each cell is a load on a cold cache while one fault strikes one
request.

A hub runs inside the rank, one fault at a time, and each load is a forked child of the rank. What
counts is told by that hub's access log: `struck` of an event `cell` is the number of requests whose
answer the fault changed.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path

PATIENCE = 60.0  # seconds until a load that does not end is ended
# Back-off sleeps of the hub's client are multiplied by this: what matters is how they end.
SHORTER = 0.01


def walk(context, *, loader, layouts, kinds, when="always"):
    """Entry: every rank walks its share of the cells and tells how each ended.

    Args:
        context: the rank's context.
        loader: `ours`, or `plain`: transformers' AutoTokenizer.
        layouts: names of layouts, with spaces between.
        kinds: kinds of fault, as `matrix.KINDS` has them, with spaces between.
        when: `always` or `once`, or both.
    """
    # In the folder the rank was started in, which the harness removes even if the rank is killed.
    with tempfile.TemporaryDirectory(prefix="walk-", dir=Path.cwd()) as folder:
        # Read by the libraries when they are imported, which nothing did so far: the scenario
        # starts ranks fresh.
        os.environ["HF_HOME"] = str(Path(folder) / "home")
        place = Place(Path(folder))
        os.environ["HF_ENDPOINT"] = place.address
        import matrix

        names, said = layouts.split(), when.split()
        wanted = [
            cell
            for cell in matrix.cells(
                names, kinds.split(), folder=Path(context.inputs["repositories"])
            )
            if cell.when in said
        ]
        share = [
            cell for number, cell in enumerate(wanted) if number % context.size == context.rank
        ]
        Walk(context, loader=loader, place=place, kinds=matrix).all(share)


class Place:
    """Where hubs listen, one after the other: the libraries read its address once."""

    def __init__(self, folder):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def hub(self, repositories, rule=None):
        """A hub that serves a folder, with one fault or none."""
        from harness.hub import Hub, Rules

        rules = Rules.model_validate({"schema": 1, "rules": [rule] if rule else []})
        return Hub(repositories, rules=rules, port=self.port)


class Walk:
    """The share of one rank."""

    def __init__(self, context, *, loader, place, kinds):
        self.context, self.loader, self.place, self.matrix = context, loader, place, kinds
        self.references = {}
        self.counted = Counter()
        self.named = []

    def all(self, cells):
        """Walk them all, and tell the sums."""
        layouts = sorted({cell.layout for cell in cells})
        self.import_all(layouts)
        shorter = 1 if self.loader == "ours" else SHORTER
        self.context.emit(
            "loader", loader=self.loader, sleeps_multiplied_by=shorter, patience=PATIENCE
        )
        healthy = True
        for layout in layouts:
            healthy = self.begin(layout) and healthy
        self.context.emit("healthy", same=healthy)
        for cell in cells:
            self.one(cell)
        counted = self.counted
        self.context.emit(
            "walk.done",
            cells=len(cells),
            counting=len(cells) - counted["not-struck"],
            silent=counted["different"] + counted["sticky"],
            unproved=counted["unproved"],
            named=", ".join(self.named)[:2000] or "none",
            **{
                name: counted[name]
                for name in ("same", "error", "different", "endless", "not-struck", "sticky")
            },
        )

    def import_all(self, layouts):
        """Load each layout from its folder, which asks no hub: the reference, and the children have
        all modules.

        Not those with code of their own: what a child imports of that must be what it fetched.
        """
        import huggingface_hub.utils._http  # noqa: F401

        matrix = self.matrix
        known = [layout for layout in layouts if not matrix.trusted(layout)]
        self.references |= matrix.references(
            known, folder=Path(self.context.inputs["repositories"])
        )
        gc.collect()
        gc.freeze()

    def begin(self, layout):
        """Serve a layout alone; keep its reference, and whether a load from a healthy hub equals
        it.
        """
        matrix, name = self.matrix, layout.partition("@")[0]
        alone = self.place.folder / "served" / layout / "rankproof" / name
        source = Path(self.context.inputs["repositories"]) / "rankproof" / layout
        shutil.copytree(source, alone)
        cell = matrix.Cell(layout=layout, target="", kind="missing", when="once")
        if layout not in self.references:
            # Code of a repository has another module name in each loader: so the same loader, from
            # a healthy hub.
            with self.place.hub(alone.parent.parent) as hub:
                commit = hub.repositories[matrix.identity(layout)].revision("main").commit
                work, cache = ours if self.loader == "ours" else plain, self.fresh()
                self.references[layout] = apart(
                    lambda: matrix.identify(work(matrix, cell, commit, cache))
                )
        with self.place.hub(alone.parent.parent) as hub:
            ended = self.load(cell, hub, self.fresh())
            asked = len(hub.requests())
        self.context.emit(
            "layout", layout=layout, outcome=ended[0], words=ended[1][:300], requests=asked
        )
        return ended[0] == "same"

    def fresh(self):
        """An empty cache, and no module of an earlier load."""
        for name in ("home", "cache"):
            shutil.rmtree(self.place.folder / name, ignore_errors=True)
        return self.place.folder / "cache"

    def one(self, cell):
        """One load; a 404 that a client may write down, and whatever was silent, once more from a
        healthy hub.
        """
        repositories = self.place.folder / "served" / cell.layout
        cache = self.fresh()
        rule = {key: value for key, value in cell.rule(0).items() if key != "clients"}
        with self.place.hub(repositories, rule) as hub:
            outcome, words, seconds = self.load(cell, hub, cache)
            seen = hub.requests()
        struck = [one for one in seen if one.rules]
        after, later = "", ""
        if outcome == "different" or (outcome != "same" and cell.kind.startswith("missing")):
            with self.place.hub(repositories) as hub:
                after, later, _ = self.load(cell, hub, cache)
        told = outcome if struck else "not-struck" if outcome == "same" else "unproved"
        self.counted[told] += 1
        if struck and "different" in (outcome, after):
            self.named.append(f"{cell.layout}/{cell.target} {cell.kind}")
        if struck and outcome != "different" and after == "different":
            self.counted["sticky"] += 1  # no fault is left, and it is another tokenizer
        self.context.emit(
            "cell",
            layout=cell.layout,
            target=cell.target,
            kind=cell.kind,
            when=cell.when,
            outcome=told,
            words=words[:300],
            requests=len(seen),
            struck=len(struck),
            answers=sorted({f"{one.method} {one.role} {one.status or one.end}" for one in struck})[
                :4
            ],
            after=after,
            after_words=later[:200],
            seconds=round(seconds, 2),
        )

    def load(self, cell, hub, cache):
        """How one load in a child ended: (outcome, words, seconds)."""
        held = hub.repositories[self.matrix.identity(cell.layout)].revision("main")
        work = ours if self.loader == "ours" else plain
        reference, matrix = self.references[cell.layout], self.matrix
        begun = time.monotonic()

        def compared():
            made = work(matrix, cell, held.commit, cache)
            return matrix.compare(made, reference)

        try:
            outcome, words = apart(compared)
        except Endless:
            outcome, words = "endless", f"no end in {PATIENCE:g} s"
        except Exception as error:  # noqa: BLE001 - an error of any kind is not silent
            outcome, words = "error", f"{type(error).__name__}: {error}"
        return outcome, words, time.monotonic() - begun


def ours(matrix, cell, commit, cache):
    """The project's loader."""
    return matrix.ours(matrix.identity(cell.layout), commit, os.environ["HF_ENDPOINT"], cache, cell)


def plain(matrix, cell, commit, cache):
    """What most programs call."""
    import huggingface_hub.utils._http as http
    from transformers import AutoTokenizer

    http.time = ShortSleeps(http.time)
    return AutoTokenizer.from_pretrained(
        matrix.identity(cell.layout),
        revision=commit,
        cache_dir=str(cache),
        trust_remote_code=matrix.trusted(cell.layout),
        **matrix.OPTIONS.get(cell.layout, {}),
    )


class ShortSleeps:
    """The module `time`, for one module, with shorter sleeps."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        return getattr(self.module, name)

    def sleep(self, seconds):
        self.module.sleep(seconds * SHORTER)


class Endless(Exception):
    """A load that had to be ended."""


class Raised(Exception):
    """An error of a child, told by its name."""


def apart(work):
    """Do something in a forked child.

    Return what it returns, or raise an error that says what it raised.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                said = ("returned", work())
            # A panic of Rust code is none of Exception.
            except BaseException as error:  # noqa: BLE001
                said = ("raised", (type(error).__name__, str(error)[:500]))
            with os.fdopen(writing, "wb") as stream:
                pickle.dump(said, stream)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        data = read_all(reading, until=time.monotonic() + PATIENCE)
    except Endless:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not data:
        raise Raised(f"the process of the load ended with {status}")
    how, what = pickle.loads(data)  # noqa: S301 - from this process's own child
    if how == "raised":
        raise type(what[0], (Raised,), {})(what[1])
    return what


def read_all(reading, *, until):
    """What a pipe gives until it is closed; Endless once it is too late."""
    data = b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise Endless
        part = os.read(reading, 1 << 16)
        if not part:
            return data
        data += part
