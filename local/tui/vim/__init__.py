"""Vim's keys for the composer: a pure machine from one key to the next state of a text."""
