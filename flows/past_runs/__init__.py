"""What is done with runs that have ended: resume, compare, trace, roll back, reuse their models."""
