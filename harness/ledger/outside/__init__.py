"""Reading the ledgers of a world, outside its ranks: whether they agree, and whether transfers
arrived intact.
"""
