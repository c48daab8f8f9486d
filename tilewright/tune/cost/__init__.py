"""Cost models: one for each family of machine, from counts of work to time."""
