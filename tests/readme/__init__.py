"""The README, held to what it says: its length, its links, its commands and their output."""
