"""The search: released engines walked over a stated space of models, shardings and prompts, by the ladder."""
