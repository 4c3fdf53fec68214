"""Worker processes on a Ray cluster, for work that one machine would do too slowly."""
