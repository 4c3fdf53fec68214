"""The section `environment`: which world is played in, and the options of each world."""
