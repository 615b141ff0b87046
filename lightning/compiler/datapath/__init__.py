"""Which product is sent when, how long that takes, where activations lie, and the count-action program."""
