"""Disks that fail, fill and rot, and who judges what a broker makes of them."""
