"""What runs inside the ranks of a sweep: the cells, and the entry that walks them."""
