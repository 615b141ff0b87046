"""The ground that all packages of lightbed stand on: errors, lazy imports, commands, compiled loops.

| module | what it offers |
|---|---|
| `errors` | the root of every error, and who must act on it |
| `wording` | numbers in sentences |
| `lazy` | names of a package that are imported when they are used |
| `command_group` | command lines whose commands are imported when they are used |
| `compiled` | functions in machine code where numba is installed |

It imports the standard library alone (`command_group` typer, `compiled` numba), and nothing of ours.
"""
