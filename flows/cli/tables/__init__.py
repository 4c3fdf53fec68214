"""Tables that commands print at their end, one module a subject; each function fills an `Output`."""
