"""The ledger: per rank a file of every collective and point-to-point call, and what the ledgers of
a world differ by.

`file` is the format, with `part` (digests of payloads) and `shares` (how a call's elements are
shared out). `inside` writes it in each rank; `outside` holds the ledgers of a world against each
other. Standard library only.
"""
