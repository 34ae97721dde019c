"""Files in and files out: storage with atomic writes, input formats, the shard plan, the row reader."""
