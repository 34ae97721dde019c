"""Experiments: data sets, trials, tables, the demo and the report."""
