"""What a program is to the scheduler: facts about its stages, and how they are linked."""
