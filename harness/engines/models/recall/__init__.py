"""The recall model: what it knows (`table`), how it was made (`train`), and its pinned weights."""
