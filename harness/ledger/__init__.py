"""Ledger: per rank a file of every collective and point-to-point call, and what the ledgers of a
world differ by.

`call` is one call, and how its elements are shared out; `file` is the format, with the digests of
payloads. `inside` writes it in each rank; `outside` holds the ledgers of a world against each
other. Standard library only.
"""
