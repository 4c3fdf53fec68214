"""The section `environment`: the real environment and the options of each."""
