"""Composer."""
