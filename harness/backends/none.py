"""none: no group. What its ranks have between them is their own: Python's sockets, pipes, HTTP."""

from __future__ import annotations

from harness.backends.properties import OF_PYTHON, BackendProperties

PROPERTIES = BackendProperties(modules=(), makes_a_group=False, portable=True, peer_gone=OF_PYTHON)
