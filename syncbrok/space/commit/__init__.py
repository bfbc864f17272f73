"""From what was asked for to one batch on the disk: channels, acceptance, the commit loop, the writer."""
