"""Routes over any topology: next hops, shortest paths, and how pairs are spread over several."""
