"""Recording a rank's collective calls, inside the rank.

`book` is the file while it is written. Hooks of torch and MLX write into it, with digests of the
payloads. Faults strike calls at the same place (`seam`).
"""
