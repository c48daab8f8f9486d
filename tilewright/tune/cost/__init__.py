"""Predicted times: one function for each family of machine."""
