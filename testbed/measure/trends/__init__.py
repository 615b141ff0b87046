"""Series over runs: their changes, with size and confidence, and the changes of the lab before each."""
