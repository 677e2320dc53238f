"""Pad a batch for as many processes as there are ranks."""

import torch
from accelerate.utils import pad_input_tensors


def pad(context, *, rows):
    batch = torch.arange(1.0, rows + 1)
    found = pad_input_tensors(batch, batch_size=rows, num_processes=context.size)
    context.emit("padded", added=found[rows:].tolist())
