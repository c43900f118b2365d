"""What the rooms above share about the machine they run on."""
