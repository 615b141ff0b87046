"""Parts that all simulated switches share: state, motion, light, faults and the server for their clients."""
