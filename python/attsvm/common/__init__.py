"""What every part needs: checks, progress, workers, replication, configuration."""
