"""Figures that anyone can reproduce: `make bench`. Never part of a test."""
