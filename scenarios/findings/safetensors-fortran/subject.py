"""Save and load a numpy array in Fortran order."""

import numpy as np
from safetensors.numpy import load, save


def save_and_load(context):
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    found = load(save({"values": values}))["values"]
    context.emit("loaded", values=found.tolist())
