"""Slash commands of the worker: built-in ones, those of files, and skills."""
