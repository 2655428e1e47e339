"""Shared by all parts of the package: argument checks, norms, result classes, files, progress bars, workers,
replication."""
