"""The commands of ``attsvm``, one module each."""
