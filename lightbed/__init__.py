"""Foundation of all packages of lightbed: errors, lazy imports, command groups, compiled functions, output files.

| module | content |
|---|---|
| `errors` | the base class of every error, and who must act on it |
| `wording` | numbers, lists and hints in sentences |
| `lazy` | names of a package that are imported on first use |
| `command_group`, `completion` | command lines that import a command on first use, and shell completion for them |
| `compiled`, `machine_code` | functions compiled by numba if it is installed, and their cache on disk |
| `output_file` | files that a user names for output |
| `http_server` | uvicorn with limits per client |
| `children`, `program` | child processes of this installation, and entry points of programs |

The package imports the standard library only, except that `command_group` and `completion` import typer, `compiled`
imports numba, `http_server` imports uvicorn, and `pytest_entry` imports pytest.
"""
