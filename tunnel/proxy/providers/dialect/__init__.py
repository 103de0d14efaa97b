"""What all dialects share about requests: content, ids, names, schemas, effort, kept reasoning, errors."""
