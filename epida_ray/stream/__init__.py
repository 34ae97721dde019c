"""The pipeline on Ray: the only folder that imports it."""
