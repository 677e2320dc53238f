"""Inference over several ranks with the engines that people run.

`session` drives an engine: prefill in chunks, decoding, evidence. An engine (`hf`, `mlx`) loads a
model, whole or its rank's share of it, and computes logits. The other modules are the entries of
the ready subjects, one each.
"""
