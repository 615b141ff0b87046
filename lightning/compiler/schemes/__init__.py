"""From floats to integers: the schemes `published` and `scaled`, and what they measure on samples."""
