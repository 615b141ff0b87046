"""Functions compiled by numba. Import them only inside functions, as numba loads slowly; `laws` needs none."""
