"""The `.lng` file: archive, document, and the check of what was read."""
