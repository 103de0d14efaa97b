"""What the composer keeps beside its text: earlier prompts, pasted texts, and letters that are shortcuts."""
