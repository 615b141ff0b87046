"""Installation of a checkout with uv: environments, and the system packages that they do not hold."""
