"""The arms: their code staged from a folder or a revision, and what is known of it before the first
trial.
"""
