"""The scheduler's view of a program: facts about its stages, and their producers and consumers."""
