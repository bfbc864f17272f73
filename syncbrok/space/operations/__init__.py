"""Commands that change declarations or take more than one batch: declare, cancel, purge, replay, retention."""
