"""What every simulated switch has in common: state, motion, light, faults, clients, and the way to serve them."""
