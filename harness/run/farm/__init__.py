"""Whole trials made on other machines: each in a world on one node, with the seeds and the record
of a local run.

From control down: `farm` deals trials to nodes, `node` is one of them as control sees it, `agent`
is the process there; `cargo` is what they are sent, `answer` what they may send back.
"""
