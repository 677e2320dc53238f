"""The report: typed blocks from the record, rendered as markdown or for a terminal. No I/O."""
