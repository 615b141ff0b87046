"""Routes over any topology: next hops, shortest paths, and pairs split over several paths."""
