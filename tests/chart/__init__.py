"""Tests of the Helm chart, and the one way tests render it."""
