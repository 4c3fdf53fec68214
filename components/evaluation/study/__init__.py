"""Results of studies, ablations and transfer: cells, pooled metrics, tables and figures."""
