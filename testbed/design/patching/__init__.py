"""Assignment of topologies to NICs, switches and patch panels: edge colouring, planes, patch lists."""
