"""A run's directory: every path, the manifest, checkpoints, export."""
