"""The ledger: per rank a file of every collective and point-to-point call, and what the ledgers of a world differ by.

`file` is the format, `agreement` holds the ledgers of a world against each other, `account` is both in the words of the
event that the harness notes. Standard library only: the ranks write the format, `harness.rank.ledger` is how.
"""
