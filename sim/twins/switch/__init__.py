"""Common parts of every simulated switch: state, motion, light, faults, clients, and the way to serve them."""
