"""A datapath explained to people: facts, a drawing of boxes and lines, and the drawing as SVG."""
