"""The paper's section 3, losses and metrics. What computes loads torch; the table of metrics alone does not."""

EPS = 1e-12
"""ε of the paper. Small, because states may decay by many orders of magnitude (kdv) and their errors stay relative."""
