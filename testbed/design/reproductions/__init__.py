"""Reproductions: what a paper published, run again with our own models, and the two side by side."""
