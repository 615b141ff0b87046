"""Losses over time: the loss of each fibre section at every reading, and its changes."""
