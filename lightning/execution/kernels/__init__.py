"""Functions in machine code. Import them inside functions only: numba takes its time; `laws` needs none."""
