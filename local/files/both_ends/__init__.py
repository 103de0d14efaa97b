"""The two halves of a copy, which distrust each other: standard library only, as one of them runs on the host."""
