"""The event loop of the flow simulator: compiled where numba is installed, and all in one folder for its cache."""
