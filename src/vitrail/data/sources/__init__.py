"""Where images come from: folders, tables, names, shards, Hugging Face, packed copies."""
