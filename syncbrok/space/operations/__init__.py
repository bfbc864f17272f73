"""What changes declarations or takes more than one batch: declare, cancel, purge, replay, retention."""
