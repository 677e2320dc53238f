"""Whole trials made on other machines: each in a world on one node, with the seeds and the record
of a local run.

From control down: `farm` deals trials to nodes, `node` is one of them as control sees it, with what
it is sent and may send back, `agent` is the process there.
"""
