"""Routes over any topology: next hops, shortest paths, and traffic split over several paths."""
