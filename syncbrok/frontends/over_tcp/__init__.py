"""The TCP frontends: one file for each wire format, and in ``session`` what they share. No format knows another."""
