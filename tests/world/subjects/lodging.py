"""Subjects that look at their room, and leave things in it."""

import hashlib
import json
import multiprocessing.connection
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

PLACES = ("HOME", "TMPDIR", "TMP", "TEMP", "HF_HOME", "TORCH_HOME")
XDG = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def places():
    """Every way to a file that the next trial might find."""
    found = [Path(os.environ[name]) for name in (*PLACES, *XDG)]
    found += [Path.home(), Path("~/.cache").expanduser(), Path(tempfile.gettempdir())]
    if "huggingface_hub" in sys.modules:
        found.append(Path(sys.modules["huggingface_hub"].constants.HF_HUB_CACHE))
    return found


def cold(context):
    """Report what an earlier world left, and leave the same.

    Only rank 0 writes, when both have looked.
    """
    warm = [str(place) for place in places() if (place / "left-here").exists()]
    if context.size > 1:
        context.group.barrier()
    digest = hashlib.sha256(os.environ["HOME"].encode()).hexdigest()
    context.emit("found", warm=warm, home=os.environ["HOME"], digest=digest)
    if context.size > 1:
        context.group.barrier()
    if context.rank == 0:
        for place in places():
            place.mkdir(parents=True, exist_ok=True)
            (place / "left-here").write_text("warm")


def spell(context, names):
    """Report variables."""
    context.emit("spelled", values={name: os.environ.get(name) for name in names})


def wreck(context, how, outside=""):
    """Leave what is hard to remove."""
    home = Path.home()
    room = home.parent
    if how == "read-only":
        for name in ("a/b/c", "d"):
            (home / name).mkdir(parents=True)
            (home / name / "file").write_text("x")
        for folder in (home / "a/b/c", home / "a/b", home / "a", home / "d", home, room):
            folder.chmod(0o000)
    elif how == "deep":
        folder = os.open(home, os.O_RDONLY)
        for _ in range(1200):
            os.mkdir("d" * 100, dir_fd=folder)
            inner = os.open("d" * 100, os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)
    elif how == "links":
        (home / "link").symlink_to(outside)
        (home / "nowhere").symlink_to("/no/such/place")
        shutil.rmtree(tempfile.gettempdir())
        Path(tempfile.gettempdir()).symlink_to(outside)
    elif how == "replaced":
        room.rename(room.with_name("elsewhere"))
        room.symlink_to(outside)
    elif how == "removed":
        shutil.rmtree(room)
    elif how == "odd":
        os.mkfifo(home / "fifo")
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(home / "socket"))
        Path(os.fsencode(home).decode() + "/line\nbreak \udcff").write_text("x")
    elif how == "immutable":
        (home / "pinned").write_text("x")
        subprocess.run(["chattr", "+i", home / "pinned"], check=True)
    context.emit("wrecked")


def listing(context):
    """Report what lies in the room."""
    room = Path(tempfile.gettempdir()).parent
    context.emit("listing", names=sorted(str(path.relative_to(room)) for path in room.rglob("*")))


def listen(context):
    """Open a socket where multiprocessing opens one, and say how long its path is."""
    with multiprocessing.connection.Listener(family="AF_UNIX") as listener:
        context.emit(
            "listening",
            length=len(listener.address),
            place=str(Path(listener.address).parent.parent),
        )


def compiled(context, plant=""):
    """Report which of MLX's kernels are there and when each was made, and where torch and Triton
    keep theirs.
    """
    import mlx.core as mx

    value = mx.compile(lambda x: mx.exp(x) * 2 + x)(mx.array([0.0]))
    mx.eval(value)
    made = {
        path.name: path.stat().st_mtime_ns
        for path in Path(tempfile.gettempdir()).glob("mlx/*/cpu/*.so")
    }
    torch = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    context.emit(
        "compiled", made={name: str(ns) for name, ns in made.items()}, torch=torch.is_dir()
    )
    torch.mkdir(parents=True, exist_ok=True)
    if plant:
        shutil.rmtree(Path(tempfile.gettempdir()) / "mlx")
        (Path(tempfile.gettempdir()) / "mlx").symlink_to(plant)


def daemon(context):
    """Leave a process of another session that goes on writing into the home folder, and wait."""
    script = (
        "import os, time\nwhile True:\n    os.makedirs(os.environ['HOME'] + '/.cache',"
        " exist_ok=True)\n"
    )
    script += "    open(os.environ['HOME'] + '/.cache/daemon', 'w').close()\n"
    subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    while not (Path.home() / ".cache/daemon").exists():
        pass
    context.emit("writing")
    context.group.barrier()


def scribe(context):
    """Leave a process of another session that goes on writing into this folder, and wait."""
    script = (
        "import os, sys\nwhile True:\n    os.makedirs(sys.argv[1], exist_ok=True)\n"
        "    open(sys.argv[1] + '/line', 'w').close()\n"
    )
    place = Path("lines").resolve()
    subprocess.Popen([sys.executable, "-c", script, str(place)], start_new_session=True)
    while not (place / "line").exists():
        pass
    context.emit("writing")
    context.group.barrier()


def hub(context, model):
    """Load a model that no input names."""
    from huggingface_hub import snapshot_download

    snapshot_download(model)


def tell(context, files):
    """Report the content of files of the home folder."""
    context.emit(
        "told", text=json.dumps({name: (Path.home() / name).read_text() for name in files})
    )


def fill(context):
    """Write into the home folder until nothing more fits."""
    full = False
    try:
        with (Path.home() / "big").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(2**16))
    except OSError:
        full = True
    context.emit("filled", full=full)
