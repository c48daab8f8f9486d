"""Models on a GPU, replayed as one graph of launches."""
