"""The rules by which stages are scheduled."""
