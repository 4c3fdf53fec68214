"""Jobs of many runs: studies, ablations and transfer, cell by cell."""
