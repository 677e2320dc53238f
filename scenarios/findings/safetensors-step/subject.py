"""Load the interleaved rows of each rank."""

import tempfile

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file


def load_rows(context):
    rows = np.repeat(np.arange(4, dtype=np.float32), context.size)
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        save_file({"rows": rows}, file.name)
        with safe_open(file.name, "numpy") as stored:
            found = stored.get_slice("rows")[context.rank :: context.size]
    context.emit("loaded", rows=found.tolist())
