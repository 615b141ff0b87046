"""Series over runs: their change points, with size and confidence, and the changes of the lab before each of them."""
