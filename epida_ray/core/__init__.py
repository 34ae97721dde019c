"""What every other part builds on: errors, samples and seeds, labels, metrics, the plug-in registry, progress."""
