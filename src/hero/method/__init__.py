"""The paper's section 3, losses and metrics. What computes loads torch; the table of metrics alone does not."""

EPS = 1e-12  # ε of the paper; small, because errors of states that decay by many orders (kdv) stay relative
