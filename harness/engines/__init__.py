"""Inference engines: the ready subjects that run transformers and mlx-lm over ranks, and the models
made for them.

Scenarios reach the subjects by name, through the registry `harness.subjects.READY`. The code that
ranks run is in `inference_inside`, which both arms get a copy of.
"""
