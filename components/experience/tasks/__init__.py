"""Which tasks are dreamed: chosen, made up, judged by what recorded tasks show."""
