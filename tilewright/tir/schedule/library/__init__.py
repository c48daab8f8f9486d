"""Algorithms made of primitives: Winograd convolution, online softmax, attention in one kernel."""
