"""The documentation as a site: pages made from commands and docstrings, and what mkdocs needs to take them."""
