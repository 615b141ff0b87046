"""Generated pages of the documentation, from commands and docstrings, and hooks of mkdocs that include them."""
