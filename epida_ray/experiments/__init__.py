"""Data sets, trials, tables, the paper's numbers, the demo and the report."""
