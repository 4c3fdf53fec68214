"""Results of studies, ablations and transfer: cells, pooling, tables, figures."""
