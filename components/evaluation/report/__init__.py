"""The report of a run, as Markdown and as HTML."""
