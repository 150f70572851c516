"""Tilings that were measured, and kept."""
