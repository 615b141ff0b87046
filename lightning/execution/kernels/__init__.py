"""Functions compiled by numba. Import them only inside functions, because numba loads slowly. `laws` needs none."""
